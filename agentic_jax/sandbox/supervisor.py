"""The sandbox in this process: queue, slots, deadlines, output, fork servers."""

import asyncio
import contextlib
import dataclasses
import itertools
import marshal
import os
import platform
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from absl import logging

from agentic_jax.sandbox.call import Call, RunningCall
from agentic_jax.sandbox.execution import (
    Execution,
    Limits,
    SandboxError,
    check_path,
    check_positive,
)
from agentic_jax.sandbox.forkserver import ForkServer, Tier
from agentic_jax.sandbox.grading import (
    Grade,
    Submission,
    grade_of,
    request_of,
    seconds_for,
)
from agentic_jax.sandbox.session import Session
from agentic_jax.sandbox.templates import TEMPLATES, Template, choose_template

_CALLS_PER_SERVER = 8  # One fork server keeps about this many cores busy.
_PROBE_SECONDS = 10.0


class Sandbox:
    """Runs code in isolated child processes of fork servers on this machine.

    async with Sandbox(workers=2) as sandbox:
        done = await sandbox.execute("print(1)", timeout=5.0)

    Args:
        workers: calls that run at the same time; the others wait in order.
        max_queue: calls that may wait; one more is answered "busy".
        limits: of each call that brings none of its own.
        templates: kinds of fork servers; a call goes to the first that holds most of
            what its code imports. The first starts at once, the others when needed.
        python: interpreter of the code, with the packages it may use.
        tiers: kinds of isolation in order of preference; the first that works here
            is used.
        allow_unsafe: if none works, run the code without isolation.

    Raises:
        ValueError: workers or max_queue is no positive whole number, or a tier is
            unknown.
        SandboxError: (on entering) this machine cannot isolate code.
    """

    def __init__(
        self,
        *,
        workers: int = 2,
        max_queue: int = 65_536,
        limits: Limits | None = None,
        templates: Sequence[Template] = TEMPLATES,
        python: str = sys.executable,
        tiers: Sequence[Tier] = ("namespaces", "landlock"),
        allow_unsafe: bool = False,
    ):
        for name, value in (("workers", workers), ("max_queue", max_queue)):
            check_positive(name, value)
            if not isinstance(value, int):
                raise ValueError(f"{name} is {value!r}; give a whole number")
        self._workers, self._max_queue = workers, max_queue
        self._limits = limits or Limits()
        for tier in tiers:
            if tier not in ("namespaces", "landlock"):
                raise ValueError(f"tier {tier!r}: choose from namespaces, landlock")
        self._tiers = (*tiers, "unsafe") if allow_unsafe else tuple(tiers)
        self._tier: Tier = "namespaces"
        self._templates, self._python = templates, python
        self._per_template = max(1, workers // _CALLS_PER_SERVER)
        self._turn = itertools.count()
        self._servers: dict[tuple[int, int], ForkServer] = {}
        self._slots = asyncio.Semaphore(workers)
        self._waiting = self._running = self._restarts = 0

    async def __aenter__(self) -> "Sandbox":
        """Starts the first fork server."""
        try:
            await self._choose_tier()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Ends every fork server, and with it every call."""
        await self.close()

    async def _choose_tier(self) -> None:
        """Takes the first tier in which a call works here."""
        refusals = []
        for tier in self._tiers:
            self._tier = tier
            try:
                probe = await self.execute("print(1)", timeout=_PROBE_SECONDS)
            except SandboxError as error:
                refusals.append(str(error))
                continue
            if probe.stdout == "1\n":
                self._restarts = 0  # Trying tiers is no fault.
                logging.info("sandbox tier: %s", tier)
                for refusal in refusals:
                    logging.warning("sandbox: %s", refusal)
                return
            refusals.append(f"tier {tier}: a first call gave {probe}")
        raise SandboxError(
            "no way to isolate code works here: "
            + "; ".join(refusals)
            + ". Give allow_unsafe to run it without isolation."
        )

    async def close(self) -> None:
        """Ends every fork server, and with it every call."""
        servers, self._servers = list(self._servers.values()), {}
        await asyncio.gather(*(server.close() for server in servers))

    async def execute(
        self,
        code: str,
        *,
        timeout: float,
        stdin: str = "",
        files: Mapping[str, bytes] | None = None,
        fetch: Sequence[str] = (),
        echo: bool = False,
        limits: Limits | None = None,
    ) -> Execution:
        """Runs a program in a process of its own.

        Args:
            code: Python source.
            timeout: seconds of wall-clock time from its start.
            stdin: what it reads; then comes the end of the file.
            files: path relative to its working directory -> contents, put there.
            fetch: paths to read from there after its end.
            echo: print a last expression as a REPL does.
            limits: in place of the sandbox's own.

        Raises:
            ValueError: timeout is not positive and finite, or a path leaves the
                working directory.
            SandboxError: the sandbox failed, twice if nothing of the code had run.
        """
        check_positive("timeout", timeout)
        files = _checked_files(files)
        for path in fetch:
            check_path(path)
        request = {"mode": "program", "code": code, "files": files, "echo": echo}
        call = Call(
            request=marshal.dumps(request),
            stdin=stdin.encode(errors="surrogatepass"),
            template=choose_template(code, self._templates),
            timeout=timeout,
            limits=limits or self._limits,
            fetch=fetch,
        )
        return await self._admit(call)

    async def grade(self, submissions: Sequence[Submission]) -> list[Grade]:
        """Runs the tests of many programs, each compiled once.

        Raises:
            SandboxError: the sandbox failed, or its queue is full.
        """
        return list(await asyncio.gather(*map(self._grade, submissions)))

    async def _grade(self, submission: Submission) -> Grade:
        limits = dataclasses.replace(
            self._limits,
            cpu_seconds=self._limits.cpu_seconds * len(submission.inputs),
            max_output_bytes=2 * self._limits.max_drained_bytes,
        )
        share = self._limits.max_drained_bytes // (8 * len(submission.inputs))
        max_bytes = min(self._limits.max_output_bytes, share)
        request = request_of(submission, max_bytes=max_bytes)
        call = Call(
            request=marshal.dumps(request),
            stdin=b"",
            template=choose_template(submission.code, self._templates),
            timeout=seconds_for(submission),
            limits=limits,
        )
        done = await self._admit(call)
        if done.status == "busy":
            raise SandboxError(done.message)
        return grade_of(submission, done)

    async def _admit(self, call: Call) -> Execution:
        """Waits for a slot and runs a call; "busy" where the queue is full."""
        asked = time.monotonic()
        if self._slots.locked() and self._waiting >= self._max_queue:
            message = f"Not run: {self._waiting} calls are waiting already."
            return Execution("", "", None, "busy", 0.0, 0.0, message=message)
        async with self._slot():
            return await self._run_with_retry(call, asked)

    async def warm(self) -> None:
        """Starts every kind of fork server, so that no call waits for imports."""
        for template in range(len(self._templates)):
            for _ in range(self._per_template):
                await self._server(template)

    def health(self) -> dict[str, Any]:
        """What the service tells about itself; plain values."""
        return {
            "status": "ok",
            "tier": self._tier,
            "workers": self._workers,
            "running": self._running,
            "waiting": self._waiting,
            "restarts": self._restarts,
            "pid": os.getpid(),
            "fork_servers": [s.pid for s in self._servers.values() if s.alive],
            "python": self._python,
            "versions": {"python": platform.python_version()},
        }

    @contextlib.asynccontextmanager
    async def session(
        self,
        *,
        files: Mapping[str, bytes] | None = None,
        limits: Limits | None = None,
    ) -> AsyncIterator[Session]:
        """A session whose cells share variables, ended on leaving the context.

        Args:
            files: put into its working directory, as `execute` does.
            limits: of the session as a whole; CPU time is bounded cell by cell, by
                the time limit of each.
        """
        session = Session(
            files=_checked_files(files),
            choose_server=self._choose_server,
            slot=self._slot,
            limits=limits or self._limits,
        )
        try:
            yield session
        finally:
            session.close()

    async def _choose_server(self, code: str) -> tuple[int, ForkServer]:
        template = choose_template(code, self._templates)
        return template, await self._server(template)

    @contextlib.asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self._slots.release()

    async def _run_with_retry(self, call: Call, asked: float) -> Execution:
        server = await self._server(call.template)
        with RunningCall(server, call) as running:
            try:
                return await running.finish(asked)
            except SandboxError as error:
                if running.has_started:
                    raise  # Some of it ran: running it again could show.
                logging.warning("sandbox call retried: %s", error)
        server = await self._server(call.template)
        with RunningCall(server, call) as running:
            return await running.finish(asked)

    async def _server(self, template: int) -> ForkServer:
        """A living fork server of a template, in turn, started if there is none."""
        place = template, next(self._turn) % self._per_template
        old = server = self._servers.get(place)
        if server is None or not server.alive or server.tier != self._tier:
            server = ForkServer(
                self._python, self._templates[template], tier=self._tier
            )
            self._servers[place] = server
            if old is not None:
                self._restarts += 1
                logging.warning("fork server %d ended; started another", old.pid)
                await old.close()
        await server.ready()
        return server


def _checked_files(files: Mapping[str, bytes] | None) -> dict[str, bytes]:
    files = dict(files or {})
    for path, data in files.items():
        check_path(path)
        if not isinstance(data, bytes):
            raise ValueError(f"files[{path!r}] is a {type(data).__name__}; give bytes")
    return files
