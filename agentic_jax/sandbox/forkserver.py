"""The supervisor's side of one zygote: starts it, sends calls, hears of their end."""

import asyncio
import marshal
import os
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from absl import logging

from agentic_jax.sandbox.execution import SandboxError
from agentic_jax.sandbox.templates import Template

Tier = Literal["namespaces", "landlock", "unsafe"]
_PACKAGE_ROOT = os.path.dirname(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
)
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from agentic_jax.sandbox import zygote; sys.path.pop(0); "
    "zygote.main(int(sys.argv[2]), *sys.argv[3:5], sys.argv[5:])"
)
_ENVIRONMENT = {
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",  # Threads do not survive a fork.
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "PYTHONHASHSEED": "0",
    "TZ": "UTC",
}
_START_SECONDS = 60.0
_MAX_MESSAGE = 1 << 16


@dataclass(frozen=True)
class Ending:
    """How a call's main process ended, by the kernel's account.

    Attributes:
        time: on the monotonic clock.
        exit_code: 0 to 255, or minus a signal.
        cpu_seconds: as far as observed.
        peak_bytes: most resident memory seen.
        reason: why the zygote stopped it: "memory", "cpu" or "".
    """

    time: float
    exit_code: int
    cpu_seconds: float
    peak_bytes: int
    reason: str


class Run:
    """One call in flight on a fork server; futures end it."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self.started: asyncio.Future[float] = loop.create_future()
        self.ended: asyncio.Future[Ending] = loop.create_future()
        self.directory: int | None = None  # Descriptor of its /tmp, if asked for.

    def close(self) -> None:
        """Lets go of its directory."""
        if self.directory is not None:
            os.close(self.directory)
            self.directory = None

    def fail(self, error: SandboxError) -> None:
        """Ends both futures; a call that had ended stays as it was."""
        for future in (self.started, self.ended):
            if not future.done():
                future.set_exception(error)
                future.exception()  # Seen: nobody may be waiting.


class ForkServer:
    """A zygote process and the calls that run on it.

    Raises:
        SandboxError: the interpreter cannot be started.
    """

    def __init__(self, python: str, template: Template, *, tier: Tier):
        self._loop = asyncio.get_running_loop()
        self._runs: dict[int, Run] = {}
        self._next_id = 1
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._reaped: asyncio.Future[int] | None = None
        self.alive = True
        self.tier = tier
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        command = [
            *(python, "-I", "-B", "-X", "utf8", "-c", _BOOT),
            *(_PACKAGE_ROOT, str(theirs.fileno())),
            *(tier, template.warm_up, *template.modules),
        ]
        try:
            self._process = subprocess.Popen(
                command,
                env=_ENVIRONMENT,
                cwd="/",
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except OSError as error:
            self._control.close()
            raise SandboxError(f"cannot start {python!r}: {error}") from error
        finally:
            theirs.close()
        self._loop.add_reader(self._control, self._receive)

    @property
    def pid(self) -> int:
        """Of the process that we started; the zygote is its child."""
        return self._process.pid

    async def ready(self) -> None:
        """Waits until it can fork.

        Raises:
            SandboxError: it ended or took too long; stderr has the reason.
        """
        try:
            async with asyncio.timeout(_START_SECONDS):
                await asyncio.shield(self._ready)
        except TimeoutError as error:
            raise SandboxError(
                f"fork server not ready after {_START_SECONDS:g} s"
            ) from error

    def start(self, limits: dict[str, int], fds: Sequence[int]) -> tuple[int, Run]:
        """Sends a call; its descriptors may be closed afterwards."""
        run_id, self._next_id = self._next_id, self._next_id + 1
        run = self._runs[run_id] = Run(self._loop)
        try:
            message = marshal.dumps(("run", run_id, limits))
            socket.send_fds(self._control, [message], list(fds))
        except OSError as error:
            self.abandon(f"cannot send: {error}")
        return run_id, run

    def send(self, kind: str, run_id: int) -> None:
        """Sends "kill" or "interrupt" for a call; one that has ended ignores it."""
        try:
            self._control.send(marshal.dumps((kind, run_id)))
        except OSError as error:
            self.abandon(f"cannot send: {error}")

    async def close(self) -> None:
        """Ends the zygote and everything in it."""
        self.abandon("closed")
        await self._reaped

    def _receive(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._control, _MAX_MESSAGE, 1)
        except BlockingIOError:
            return
        except OSError as error:
            data, fds = b"", []
            logging.warning("fork server socket: %s", error)
        if not data:
            self.abandon("ended unexpectedly")
            return
        kind, run_id, *rest = marshal.loads(data)
        run = self._runs.get(run_id)
        if kind == "ready":
            self._ready.set_result(None)
        elif kind == "refused":
            self.abandon(f"the {self.tier} tier is refused here: {rest[0]}")
        elif run is None:
            for fd in fds:
                os.close(fd)
        elif kind == "started":
            run.directory = fds[0] if fds else None
            if not run.started.done():
                run.started.set_result(rest[0])
        elif kind == "failed":
            del self._runs[run_id]
            logging.warning("sandbox set-up failed: %s", rest[0])
            run.fail(SandboxError(f"set-up of the call failed: {rest[0]}"))
        elif kind == "ended":
            del self._runs[run_id]
            if not run.ended.done():
                run.ended.set_result(Ending(*rest))

    def abandon(self, why: str) -> None:
        """Gives up this server: its socket closes, so the kernel ends its calls."""
        if not self.alive:
            return
        self.alive = False
        self._loop.remove_reader(self._control)
        self._control.close()
        self._reaped = self._loop.run_in_executor(None, self._process.wait)
        error = SandboxError(f"fork server {self._process.pid}: {why}")
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()
        for run in self._runs.values():
            run.fail(error)
        self._runs.clear()
