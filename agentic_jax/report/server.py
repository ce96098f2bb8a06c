"""Serves a report to this machine only, and builds each step when it is asked for."""

import asyncio
import pathlib
import re
from collections.abc import Sequence

from aiohttp import web

from agentic_jax.report.build import Run, build_step, write_page, write_runs

HOST = "127.0.0.1"
_STEP_FILE = re.compile(r"data/(\w+)/(?:steps|texts|groups)/(\d+)(?:/\d+)?\.js")
_LOCAL_NAMES = {HOST, "localhost"}


def make_app(runs: Sequence[Run], out: pathlib.Path) -> web.Application:
    """An application whose files are those that build_report would write.

    Args:
        runs: finished or running; what they have written is seen at each request.
        out: the report's folder, filled as far as it is looked at.
    """
    by_key = {run.key: run for run in runs}
    building = asyncio.Lock()  # Two requests must not write one file.

    async def answer(request: web.Request) -> web.StreamResponse:
        if (request.url.host or "") not in _LOCAL_NAMES:  # Another site's name for us.
            raise web.HTTPForbidden(text=f"ask for {HOST}, not {request.url.host}")
        name = request.match_info["name"] or "index.html"
        step_file = _STEP_FILE.fullmatch(name)
        async with building:
            if name == "data/runs.js":
                await asyncio.to_thread(write_runs, runs, out, live=True)
            elif step_file and step_file[1] in by_key:
                run, step = by_key[step_file[1]], int(step_file[2])
                try:
                    await asyncio.to_thread(build_step, run, step, out)
                except FileNotFoundError as error:
                    raise web.HTTPNotFound(text=str(error)) from error
        path = (out / name).resolve()
        if not path.is_relative_to(out.resolve()) or not path.is_file():
            raise web.HTTPNotFound(text=f"no file {name}")
        headers = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
        return web.FileResponse(path, headers=headers)

    write_page(out)
    app = web.Application()
    app.router.add_get("/{name:.*}", answer)
    return app


async def serve(runs: Sequence[Run], out: pathlib.Path, *, port: int) -> None:
    """Serves until it is cancelled.

    Raises:
        OSError: the port is taken.
    """
    runner = web.AppRunner(make_app(runs, out), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port).start()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
