"""Live sessions: variables that outlive a call, for one trajectory."""

import asyncio
import contextlib
import dataclasses
import marshal
import os
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from agentic_jax.sandbox.call import KILL_SECONDS, Call, RunningCall, memory_file
from agentic_jax.sandbox.execution import Execution, Limits, check_path, check_positive
from agentic_jax.sandbox.forkserver import ForkServer

ChooseServer = Callable[[str], Awaitable[tuple[int, ForkServer]]]
Slot = Callable[[], AbstractAsyncContextManager[None]]
_INTERRUPT_SECONDS = 1.0  # Between KeyboardInterrupt and SIGKILL.
_REPLY = struct.Struct("<II")  # Number of the cell, exit status.
_LOST = "The session ended and its variables are lost."


class Session:
    """A child that runs cell after cell; made by `Sandbox.session`.

    It starts with its first cell, and anew after a cell that ended it.
    """

    def __init__(
        self,
        *,
        files: Mapping[str, bytes],
        choose_server: ChooseServer,
        slot: Slot,
        limits: Limits,
    ):
        self._files = dict(files)
        self._choose_server, self._slot, self._limits = choose_server, slot, limits
        self._running: RunningCall | None = None
        self._channel: socket.socket | None = None
        self._reply: asyncio.Future[int] | None = None
        self._number = 0
        self._in_turn = asyncio.Lock()

    async def execute(
        self, code: str, *, timeout: float, echo: bool = True
    ) -> Execution:
        """Runs one cell, after those asked for earlier.

        At the time limit the cell gets KeyboardInterrupt and the variables stay; one
        that ignores it for a second is killed, and its session with it.

        Args:
            code: Python source.
            timeout: seconds of wall-clock time.
            echo: print a last expression as a REPL does.

        Raises:
            ValueError: timeout is not positive and finite.
            SandboxError: the sandbox failed; the variables are lost.
        """
        check_positive("timeout", timeout)
        asked = time.monotonic()
        async with self._in_turn, self._slot():
            try:
                if self._running is None:
                    await self._open(code)
                return await self._run_cell(code, timeout, echo, asked)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Ends the child; the next cell would start a fresh one."""
        if self._running is not None:
            asyncio.get_running_loop().remove_reader(self._channel)
            self._channel.close()
            self._running.close()
            self._running = self._channel = None

    def read_files(self, paths: Sequence[str]) -> dict[str, bytes]:
        """Plain files of the living session's working directory, as `fetch` reads."""
        for path in paths:
            check_path(path)
        return self._running.read_files(paths) if self._running else {}

    async def _open(self, code: str) -> None:
        template, server = await self._choose_server(code)
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setblocking(False)
        self._number = 0
        call = Call(
            request=marshal.dumps({"mode": "session", "files": self._files}),
            stdin=b"",
            template=template,
            timeout=0.0,
            limits=self._limits,
        )
        with theirs:
            self._running = RunningCall(server, call, channel=theirs.fileno())
        asyncio.get_running_loop().add_reader(self._channel, self._receive)
        await self._running.started()

    async def _run_cell(
        self, code: str, timeout: float, echo: bool, asked: float
    ) -> Execution:
        started = time.monotonic()
        self._number += 1
        self._reply = asyncio.get_running_loop().create_future()
        fd = memory_file(marshal.dumps({"code": code, "echo": echo}))
        with contextlib.suppress(OSError):  # It died between cells: `ended` says how.
            socket.send_fds(self._channel, [_REPLY.pack(self._number, 0)], [fd])
        os.close(fd)
        running = self._running
        timed_out = not await self._done_within(timeout)
        if timed_out:
            running.interrupt()
            if not await self._done_within(_INTERRUPT_SECONDS):
                running.stop("timeout")
                await running.end_within(KILL_SECONDS)
        if not self._reply.done():
            done = running.execution(started, asked=asked, timeout=timeout)
            self.close()
            status = "error" if done.status == "ok" else done.status
            message = f"{done.message} {_LOST}".strip()
            return dataclasses.replace(done, status=status, message=message)
        stdout, stderr = running.output()
        exit_code = self._reply.result()
        late = f"Stopped: the time limit of {timeout:g} s was reached; variables stay."
        return Execution(
            stdout=stdout,
            stderr=stderr,
            exit_code=exit_code,
            status="timeout" if timed_out else "error" if exit_code else "ok",
            seconds=time.monotonic() - started,
            queue_seconds=started - asked,
            message=late if timed_out else "",
        )

    async def _done_within(self, seconds: float) -> bool:
        """Whether the cell, or its whole session, ended in time."""
        done, _ = await asyncio.wait(
            (self._reply, self._running.ended),
            timeout=seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        return bool(done)

    def _receive(self) -> None:
        """A message of the child; anything but the reply that is due is ignored."""
        try:
            data = self._channel.recv(64)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._channel)
        elif len(data) == _REPLY.size and self._reply and not self._reply.done():
            number, status = _REPLY.unpack(data)
            if number == self._number:
                self._reply.set_result(status & 0xFF)
