"""What a sandbox is asked for and what it answers."""

import math
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from agentic_jax.trajectory import CallStatus


class SandboxError(OSError):
    """The sandbox itself failed; the code is not to blame."""


@dataclass(frozen=True)
class Limits:
    """What one call may use, over all its processes unless it says otherwise.

    Attributes:
        memory_mb: MiB; one process that asks for more gets MemoryError, several that
            hold more together are killed.
        cpu_seconds: processor time.
        max_processes: processes and threads.
        max_open_files: per process.
        disk_mb: MiB of files.
        max_files: files and directories.
        max_output_bytes: kept of stdout and of stderr: head and tail, half each.
        max_drained_bytes: printed on either, kept or not, before the call is killed.

    Raises:
        ValueError: a limit is not a positive finite number.
    """

    memory_mb: int = 512
    cpu_seconds: float = 60.0
    max_processes: int = 64
    max_open_files: int = 256
    disk_mb: int = 128
    max_files: int = 8192
    max_output_bytes: int = 1_000_000
    max_drained_bytes: int = 64_000_000

    def __post_init__(self):
        """Checks every limit."""
        for option in fields(self):
            value = getattr(self, option.name)
            check_positive(option.name, value)
            if option.type is int and not isinstance(value, int):
                raise ValueError(f"{option.name} is {value!r}; give a whole number")


@dataclass(frozen=True)
class Execution:
    """How one call ended.

    Attributes:
        stdout: text, invalid UTF-8 replaced; a cut is said in words where it is.
        stderr: the same for stderr.
        exit_code: the kernel's: 0 to 255, or minus the signal that ended it; None if
            nothing ran.
        status: "ok" (exit code 0), "error", "timeout", "memory", "output", or "busy"
            (the queue was full and nothing ran).
        seconds: wall-clock time from the code's start to its end.
        queue_seconds: waited for a free slot; never counts against a limit.
        cpu_seconds: processor time, as far as it could be observed.
        peak_bytes: most memory seen, pages shared with the fork server included.
        message: why it was stopped, in words; "" if it ended by itself.
        files: those asked for that exist as plain files in the working directory.
    """

    stdout: str
    stderr: str
    exit_code: int | None
    status: CallStatus
    seconds: float
    queue_seconds: float
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    message: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)


def check_positive(name: str, value: float) -> None:
    """Refuses anything that is not a positive finite number."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name} is {value!r}; give a positive finite number")


def check_path(path: str) -> str:
    """A relative path inside the working directory, unchanged.

    Raises:
        ValueError: it is absolute, empty, leaves the directory or holds a NUL.
    """
    parts = path.split("/") if isinstance(path, str) else []
    bad = not parts or posixpath.isabs(path) or "\0" in path
    if bad or any(part in ("", ".", "..") or len(part) > 255 for part in parts):
        raise ValueError(f"file path {path!r}; give a relative path without '..'")
    return path
