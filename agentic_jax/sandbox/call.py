"""One call on one fork server: its descriptors, deadline and end."""

import asyncio
import math
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from agentic_jax.sandbox.execution import Execution, Limits, SandboxError
from agentic_jax.sandbox.files import read_files
from agentic_jax.sandbox.forkserver import Ending, ForkServer
from agentic_jax.sandbox.stream import Stream

_NO_LIMIT = 1 << 40
_SETUP_SECONDS = 30.0  # For a child to isolate itself; it takes milliseconds.
KILL_SECONDS = 10.0  # For a killed call to be gone.
_MESSAGES = {
    "timeout": "Stopped: the time limit of {timeout:g} s was reached.",
    "cpu": "Stopped: the limit of {limits.cpu_seconds:g} s of CPU time was reached.",
    "memory": "Stopped: the memory limit of {limits.memory_mb} MB was exceeded.",
    "output": "Stopped: more than {limits.max_drained_bytes} bytes were printed.",
    "disk": "Stopped: more than {limits.disk_mb} MB or {limits.max_files} files.",
    "": "",
}
_T = TypeVar("_T")
Reason = Literal["timeout", "cpu", "memory", "output", "disk", ""]


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
    """A call that was sent to a fork server; a context manager that leaves nothing.

    Args:
        server: that it runs on.
        call: what to run.
        channel: descriptor that a session's child reads cells from, or None.
    """

    def __init__(self, server: ForkServer, call: Call, *, channel: int | None = None):
        self._server, self._call = server, call
        self._reason: Reason = ""
        options = {
            "max_bytes": call.limits.max_output_bytes,
            "max_drained": call.limits.max_drained_bytes,
            "on_flood": lambda: self.stop("output"),
        }
        self._stdout, self._stderr = Stream(**options), Stream(**options)
        inputs = [memory_file(data) for data in (call.request, call.stdin)]
        fds = [*inputs, self._stdout.write_end, self._stderr.write_end]
        if channel is not None:
            fds.append(channel)
        numbers = _numbers(call, is_session=channel is not None)
        self._id, self._run = server.start(numbers, fds)
        for fd in inputs:
            os.close(fd)
        for stream in (self._stdout, self._stderr):
            stream.close_write_end()

    def __enter__(self) -> "RunningCall":
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kills what still runs and closes every descriptor."""
        self.close()

    def close(self) -> None:
        """Kills what still runs and closes every descriptor."""
        if not self.ended.done():
            self._server.send("kill", self._id)
        if self._run.directory is not None:
            self._server.send("release", self._id)
        self._stdout.close()
        self._stderr.close()
        self._run.close()

    @property
    def ended(self) -> asyncio.Future[Ending]:
        """Resolves when no process of the call is left."""
        return self._run.ended

    @property
    def has_started(self) -> bool:
        """Whether some of the code may have run."""
        started = self._run.started
        return started.done() and started.exception() is None

    async def started(self) -> float:
        """Waits until the code starts: monotonic seconds.

        Raises:
            SandboxError: the fork server died, or set-up failed or took too long.
        """
        return await self._within(_SETUP_SECONDS, self._run.started, "set-up")

    async def finish(self, asked: float) -> Execution:
        """Waits for its end; `asked` is when the caller asked, monotonic seconds.

        Raises:
            SandboxError: the fork server died, or set-up or killing took too long.
        """
        started = await self.started()
        left = started + self._call.timeout - time.monotonic()
        timer = asyncio.get_running_loop().call_later(left, self.stop, "timeout")
        try:
            await self.end_within(max(0.0, left) + KILL_SECONDS)
        finally:
            timer.cancel()
        return self.execution(started, asked=asked, timeout=self._call.timeout)

    async def end_within(self, seconds: float) -> Ending:
        """Waits for its end; a fork server that lets it run on is given up.

        Raises:
            SandboxError: the fork server died, or killing took too long.
        """
        return await self._within(seconds, self.ended, "end")

    def stop(self, reason: Reason) -> None:
        """Kills it; the first reason given is the one reported."""
        if not self._reason:
            self._reason = reason
            self._server.send("kill", self._id)

    def interrupt(self) -> None:
        """Sends SIGINT to its main process."""
        self._server.send("interrupt", self._id)

    def output(self) -> tuple[str, str]:
        """stdout and stderr since the last time."""
        return self._stdout.take(), self._stderr.take()

    def read_files(self, paths: Sequence[str]) -> dict[str, bytes]:
        """Plain files of the working directory; empty unless it was kept."""
        if self._run.directory is None:
            return {}
        size = self._call.limits.disk_mb << 20
        return read_files(self._run.directory, paths, max_bytes=size)

    def execution(self, started: float, *, asked: float, timeout: float) -> Execution:
        """What is to be said of it after its end."""
        ending = self.ended.result()
        reason: Reason = ending.reason or self._reason
        if reason == "timeout" and ending.time < started + timeout:
            reason = ""  # It ended by itself while the others were being cleared away.
        if ending.exit_code == -signal.SIGXCPU:
            reason = reason or "cpu"
        if reason:
            status = {"cpu": "timeout", "disk": "error"}.get(reason, reason)
        else:
            status = "ok" if ending.exit_code == 0 else "error"
        limits = self._call.limits
        stdout, stderr = self.output()
        return Execution(
            stdout=stdout,
            stderr=stderr,
            exit_code=ending.exit_code,
            status=status,
            seconds=max(0.0, ending.time - started),
            queue_seconds=started - asked,
            cpu_seconds=ending.cpu_seconds,
            peak_bytes=ending.peak_bytes,
            message=_MESSAGES[reason].format(timeout=timeout, limits=limits),
            files=self.read_files(self._call.fetch),
        )

    async def _within(
        self, seconds: float, future: asyncio.Future[_T], what: str
    ) -> _T:
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(future)
        except TimeoutError as error:
            self._server.abandon(f"no {what} of a call within {seconds:g} s")
            raise SandboxError(f"no {what} of a call within {seconds:g} s") from error


def _numbers(call: Call, *, is_session: bool) -> dict[str, int]:
    """Limits in the units that the zygote works with."""
    limits = call.limits
    return {
        "memory_bytes": limits.memory_mb << 20,
        # A session lives as long as its trajectory; each cell has its own time limit.
        "cpu_seconds": _NO_LIMIT if is_session else math.ceil(limits.cpu_seconds),
        "max_processes": limits.max_processes,
        "max_open_files": limits.max_open_files,
        "disk_bytes": limits.disk_mb << 20,
        "max_files": limits.max_files,
        "keep_files": is_session or bool(call.fetch),
        "is_session": is_session,
    }


def memory_file(data: bytes) -> int:
    """Descriptor of an anonymous file that holds data, at its start."""
    fd = os.memfd_create("call", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False, buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
