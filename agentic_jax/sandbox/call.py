"""One call on one fork server: its descriptors, deadline and end."""

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agentic_jax.sandbox.execution import Execution, Limits, SandboxError
from agentic_jax.sandbox.files import read_files
from agentic_jax.sandbox.forkserver import Ending, ForkServer
from agentic_jax.sandbox.stream import Stream

_SETUP_SECONDS = 30.0  # For a child to isolate itself; it takes milliseconds.
_KILL_SECONDS = 10.0  # For a killed call to be gone.
_MESSAGES = {
    "timeout": "Stopped: the time limit of {timeout:g} s was reached.",
    "cpu": "Stopped: the limit of {limits.cpu_seconds:g} s of CPU time was reached.",
    "memory": "Stopped: the memory limit of {limits.memory_mb} MB was exceeded.",
    "output": "Stopped: more than {limits.max_drained_bytes} bytes were printed.",
    "": "",
}
Reason = Literal["timeout", "cpu", "memory", "output", ""]


@dataclass(frozen=True)
class Call:
    """What is to run.

    Attributes:
        request: marshalled dict that the child runs; see `child.run_request`.
        stdin: what it reads.
        template: index of the kind of fork server.
        timeout: seconds of wall-clock time.
        limits: everything else that bounds it.
        fetch: files to read afterwards.
    """

    request: bytes
    stdin: bytes
    template: int
    timeout: float
    limits: Limits
    fetch: Sequence[str] = ()


class RunningCall:
    """A call that was sent to a fork server; a context manager that leaves nothing."""

    def __init__(self, server: ForkServer, call: Call):
        self._server, self._call = server, call
        self._reason: Reason = ""
        options = {
            "max_bytes": call.limits.max_output_bytes,
            "max_drained": call.limits.max_drained_bytes,
            "on_flood": lambda: self._stop("output"),
        }
        self._stdout, self._stderr = Stream(**options), Stream(**options)
        inputs = [_memory_file(data) for data in (call.request, call.stdin)]
        outputs = [self._stdout.write_end, self._stderr.write_end]
        self._id, self._run = server.start(_numbers(call), [*inputs, *outputs])
        for fd in inputs:
            os.close(fd)
        for stream in (self._stdout, self._stderr):
            stream.close_write_end()

    def __enter__(self) -> "RunningCall":
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kills what still runs and closes every descriptor."""
        if not self._run.ended.done():
            self._server.send("kill", self._id)
        self._stdout.close()
        self._stderr.close()
        self._run.close()

    @property
    def has_started(self) -> bool:
        """Whether some of the code may have run."""
        started = self._run.started
        return started.done() and started.exception() is None

    async def finish(self, asked: float) -> Execution:
        """Waits for its end; `asked` is when the caller asked, monotonic seconds.

        Raises:
            SandboxError: the fork server died, or set-up or killing took too long.
        """
        started = await self._within(_SETUP_SECONDS, self._run.started, "set-up")
        left = started + self._call.timeout - time.monotonic()
        timer = asyncio.get_running_loop().call_later(left, self._stop, "timeout")
        try:
            wait = max(0.0, left) + _KILL_SECONDS
            ending = await self._within(wait, self._run.ended, "end")
        finally:
            timer.cancel()
        return self._execution(started, ending, queue_seconds=started - asked)

    async def _within(self, seconds: float, future: asyncio.Future, what: str):
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(future)
        except TimeoutError as error:
            self._server.abandon(f"no {what} of a call within {seconds:g} s")
            raise SandboxError(f"no {what} of a call within {seconds:g} s") from error

    def _stop(self, reason: Reason) -> None:
        if not self._reason:
            self._reason = reason
            self._server.send("kill", self._id)

    def _execution(
        self, started: float, ending: Ending, *, queue_seconds: float
    ) -> Execution:
        reason: Reason = ending.reason or self._reason
        if ending.exit_code == -signal.SIGXCPU:
            reason = reason or "cpu"
        if reason:
            status = "timeout" if reason == "cpu" else reason
        else:
            status = "ok" if ending.exit_code == 0 else "error"
        files = {}
        if self._run.directory is not None:
            files = read_files(
                self._run.directory,
                self._call.fetch,
                max_bytes=self._call.limits.disk_mb << 20,
            )
        return Execution(
            stdout=self._stdout.take(),
            stderr=self._stderr.take(),
            exit_code=ending.exit_code,
            status=status,
            seconds=ending.time - started,
            queue_seconds=queue_seconds,
            cpu_seconds=ending.cpu_seconds,
            peak_bytes=ending.peak_bytes,
            message=_MESSAGES[reason].format(
                timeout=self._call.timeout, limits=self._call.limits
            ),
            files=files,
        )


def _numbers(call: Call) -> dict[str, int]:
    """Limits in the units that the zygote works with."""
    limits = call.limits
    return {
        "memory_bytes": limits.memory_mb << 20,
        "cpu_seconds": max(1, round(limits.cpu_seconds)),
        "max_processes": limits.max_processes,
        "max_open_files": limits.max_open_files,
        "disk_bytes": limits.disk_mb << 20,
        "max_files": limits.max_files,
        "keep_files": bool(call.fetch),
        "is_session": 0,
    }


def _memory_file(data: bytes) -> int:
    """Descriptor of an anonymous file that holds data, at its start."""
    fd = os.memfd_create("call", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False, buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
