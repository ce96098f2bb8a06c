"""What running calls use, read from /proc.

Runs inside zygotes, so it imports the standard library only. See proc(5).
"""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

NICE_AFTER = 0.2  # CPU seconds after which a call yields to shorter ones.
_NICENESS = 15
_PAGE = os.sysconf("SC_PAGE_SIZE")
_CLOCK = os.sysconf("SC_CLK_TCK")


@dataclass
class Use:
    """All living processes of one call together; rss counts shared pages each time."""

    pids: list[int] = field(default_factory=list)
    cpu_seconds: float = 0.0
    rss_bytes: int = 0
    disk_bytes: int = 0  # Both where no file system of the call's own bounds them.
    files: int = 0


def usage(roots: dict[int, int], *, without: Iterable[int] = ()) -> dict[int, Use]:
    """Use per call of every process that descends from one of its root pids.

    Args:
        roots: pid -> call.
        without: pids that use nothing of their own, such as waiting inits.
    """
    stats = _stats()
    parents = {pid: int(fields[1]) for pid, fields in stats.items()}
    uses: dict[int, Use] = {}
    for pid, fields in stats.items():
        root = pid
        while root not in roots and root in parents:
            root = parents[root]
        if root in roots and pid not in without:
            use = uses.setdefault(roots[root], Use())
            use.pids.append(pid)
            use.cpu_seconds += sum(int(x) for x in fields[11:15]) / _CLOCK
            use.rss_bytes += int(fields[21]) * _PAGE
    return uses


def children(parent: int) -> list[int]:
    """Pids of the direct children of a process."""
    return [pid for pid, fields in _stats().items() if int(fields[1]) == parent]


def user_threads(uid: int) -> int:
    """Threads that a user runs in all, as RLIMIT_NPROC counts them."""
    total = 0
    for pid, fields in _stats().items():
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid == uid:
                total += int(fields[17])
    return total


def user(pid: int) -> int:
    """Real uid of a process."""
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[1])
    raise OSError(f"/proc/{pid}/status has no Uid line")


def _stats() -> dict[int, list[str]]:
    """Fields of /proc/PID/stat from the third on, of all that can be seen."""
    stats = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):  # It ended meanwhile.
                text = _read(f"/proc/{name}/stat")
                stats[int(name)] = text.rpartition(")")[2].split()
    return stats


def proportional_bytes(pids: list[int]) -> int:
    """Memory of some processes, each shared page divided among those that share it."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) << 10
    return total


def lower_priority(pids: list[int]) -> None:
    """Makes long runners wait for short ones; what they start inherits it."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, pid, _NICENESS)


def data_bytes() -> int:
    """Private writable memory of this process, which forks start with."""
    for line in _read("/proc/self/status").splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) << 10
    raise OSError("/proc/self/status has no VmData line")


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()
