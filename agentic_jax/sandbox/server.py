"""The sandbox as an HTTP service."""

import asyncio
import itertools
import platform
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from absl import logging
from aiohttp import web

from agentic_jax.sandbox import wire
from agentic_jax.sandbox.execution import (
    Execution,
    Limits,
    SandboxError,
    check_positive,
)
from agentic_jax.sandbox.session import Session
from agentic_jax.sandbox.supervisor import Sandbox

_MAX_BODY_BYTES = 32 << 20
_BODY_SECONDS = 60.0  # For a client to send what it announced.
_IDLE_SECONDS = 900.0  # Then a session that nobody closed is closed.
_MAX_SESSIONS = 1024
Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class Service:
    """Routes over a sandbox that is already running."""

    def __init__(self, sandbox: Sandbox, *, limits: Limits):
        self._sandbox, self._limits = sandbox, limits
        self._sessions: dict[str, tuple[Session, AsyncExitStack]] = {}
        self._last_use: dict[str, float] = {}
        self._session_ids = itertools.count(1)
        self._seconds: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()

    def application(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.add_routes(
            [
                web.post("/run_code", self._route(self._run_code)),
                web.post("/run_jupyter", self._route(self._run_jupyter)),
                web.post("/execute", self._route(self._execute)),
                web.post("/grade", self._route(self._grade)),
                web.post("/judge/batch", self._route(self._judge)),
                web.post("/session/open", self._route(self._open)),
                web.post("/session/execute", self._route(self._execute_cell)),
                web.post("/session/close", self._route(self._close)),
                web.get("/health", self._health),
                web.get("/metrics", self._metrics),
            ]
        )
        app.cleanup_ctx.append(self._expire)
        return app

    def _route(self, handler: Handler) -> Callable[[web.Request], Awaitable]:
        """Adds body reading and the two kinds of refusal to a handler."""

        async def handle(request: web.Request) -> web.Response:
            try:
                async with asyncio.timeout(_BODY_SECONDS):
                    body = wire.decode(await request.read())
                return web.json_response(await handler(body))
            except (ValueError, KeyError) as error:
                return web.json_response({"error": str(error)}, status=400)
            except SandboxError as error:
                logging.warning("sandbox fault: %s", error)
                self._calls["fault"] += 1
                return web.json_response({"error": str(error)}, status=500)
            except TimeoutError:
                return web.json_response({"error": "body too slow"}, status=408)

        return handle

    async def _run_code(self, body: dict[str, Any]) -> dict[str, Any]:
        language = wire.field(body, "language", str, "python")
        if language != "python":
            return wire.fusion_fault(f"language {language!r}: only 'python' is here")
        try:
            done = await self._sandbox.execute(
                **wire.fusion_arguments(body, self._limits)
            )
        except SandboxError as error:
            self._calls["fault"] += 1
            return wire.fusion_fault(str(error))
        return wire.fusion_answer(self._counted(done))

    async def _run_jupyter(self, body: dict[str, Any]) -> dict[str, Any]:
        wire.field(body, "cells", list)
        cells = wire.paths(body, "cells")
        cell_timeout = wire.field(body, "cell_timeout", float, 10.0)
        total_timeout = wire.field(body, "total_timeout", float, 30.0)
        for name, seconds in (("cell", cell_timeout), ("total", total_timeout)):
            check_positive(f"{name}_timeout", seconds)
        deadline = time.monotonic() + total_timeout
        files = wire.decode_files(wire.field(body, "files", dict, {}))
        fetch = wire.paths(body, "fetch_files")
        done = []
        async with self._sandbox.session(files=files) as session:
            for cell in cells:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                timeout = min(cell_timeout, left)
                done.append(self._counted(await session.execute(cell, timeout=timeout)))
                if done[-1].status != "ok":
                    break
            return wire.jupyter_answer(done, session.read_files(fetch))

    async def _execute(self, body: dict[str, Any]) -> dict[str, Any]:
        done = await self._sandbox.execute(
            wire.field(body, "code", str),
            timeout=wire.field(body, "timeout", float),
            stdin=wire.field(body, "stdin", str, ""),
            files=wire.decode_files(wire.field(body, "files", dict, {})),
            fetch=wire.paths(body, "fetch"),
            echo=wire.field(body, "echo", bool, False),
            limits=wire.decode_limits(body, self._limits),
        )
        return wire.encode_execution(self._counted(done))

    async def _grade(self, body: dict[str, Any]) -> dict[str, Any]:
        (grade,) = await self._sandbox.grade([wire.decode_submission(body)])
        self._calls["graded"] += 1
        return wire.encode_grade(grade)

    async def _judge(self, body: dict[str, Any]) -> dict[str, Any]:
        submissions, places = wire.judge_submissions(body)
        grades = await self._sandbox.grade(submissions)
        self._calls["graded"] += len(grades)
        return wire.judge_answer(grades, places)

    async def _open(self, body: dict[str, Any]) -> dict[str, Any]:
        if len(self._sessions) >= _MAX_SESSIONS:
            raise SandboxError(f"{_MAX_SESSIONS} sessions are open already")
        stack = AsyncExitStack()
        session = await stack.enter_async_context(
            self._sandbox.session(
                files=wire.decode_files(wire.field(body, "files", dict, {})),
                limits=wire.decode_limits(body, self._limits),
            )
        )
        session_id = str(next(self._session_ids))
        self._sessions[session_id] = (session, stack)
        self._last_use[session_id] = time.monotonic()
        return {"session": session_id}

    async def _execute_cell(self, body: dict[str, Any]) -> dict[str, Any]:
        session_id = wire.field(body, "session", str)
        if session_id not in self._sessions:
            raise ValueError(f"no session {session_id!r:.100}; it may have expired")
        session, _ = self._sessions[session_id]
        self._last_use[session_id] = time.monotonic()
        done = await session.execute(
            wire.field(body, "code", str),
            timeout=wire.field(body, "timeout", float),
            echo=wire.field(body, "echo", bool, True),
        )
        self._last_use[session_id] = time.monotonic()
        return wire.encode_execution(self._counted(done))

    async def _close(self, body: dict[str, Any]) -> dict[str, Any]:
        session_id = wire.field(body, "session", str)
        if session_id in self._sessions:
            _, stack = self._sessions.pop(session_id)
            del self._last_use[session_id]
            await stack.aclose()
        return {}

    async def _expire(self, _: web.Application):
        """Closes idle sessions while the application runs, and all at its end."""

        async def expire() -> None:
            while True:
                await asyncio.sleep(_IDLE_SECONDS / 10)
                limit = time.monotonic() - _IDLE_SECONDS
                for session_id, used in list(self._last_use.items()):
                    if used < limit:
                        logging.warning("session %s was left idle", session_id)
                        await self._close({"session": session_id})

        task = asyncio.create_task(expire())
        yield
        task.cancel()
        for session_id in list(self._sessions):
            await self._close({"session": session_id})

    def _counted(self, done: Execution) -> Execution:
        self._calls[done.status] += 1
        self._seconds["run"] += done.seconds
        self._seconds["queue"] += done.queue_seconds
        self._seconds["cpu"] += done.cpu_seconds
        return done

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response(
            self._sandbox.health()
            | {"sessions": len(self._sessions), "platform": platform.platform()}
        )

    async def _metrics(self, _: web.Request) -> web.Response:
        health = self._sandbox.health()
        lines = ["# TYPE sandbox_calls_total counter"]
        lines += [
            f'sandbox_calls_total{{status="{status}"}} {count}'
            for status, count in sorted(self._calls.items())
        ]
        for name, seconds in sorted(self._seconds.items()):
            lines.append(f"# TYPE sandbox_{name}_seconds_total counter")
            lines.append(f"sandbox_{name}_seconds_total {seconds:.6f}")
        gauges = {k: health[k] for k in ("workers", "running", "waiting", "restarts")}
        for name, value in (gauges | {"sessions": len(self._sessions)}).items():
            lines.append(f"# TYPE sandbox_{name} gauge")
            lines.append(f"sandbox_{name} {value}")
        return web.Response(text="\n".join(lines) + "\n")


async def serve(
    sandbox: Sandbox, *, host: str, port: int, limits: Limits
) -> web.AppRunner:
    """Starts answering; `await runner.cleanup()` stops it.

    A client that goes away ends its call.
    """
    runner = web.AppRunner(
        Service(sandbox, limits=limits).application(),
        handler_cancellation=True,
        access_log=None,
    )
    await runner.setup()
    await web.TCPSite(runner, host, port, backlog=1024).start()
    return runner
