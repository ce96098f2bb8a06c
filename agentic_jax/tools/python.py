"""The Python interpreter tool."""

import contextlib
import dataclasses
import re
from collections.abc import AsyncIterator

from agentic_jax.sandbox.capture import cut_middle
from agentic_jax.sandbox.client import Execution, Sandbox, SandboxClient
from agentic_jax.tools.base import Tool
from agentic_jax.trajectory import CallStatus, ToolResult

_FENCE = re.compile(r"```[ \t]*(?:python|py)?[ \t]*\n(.*?)(?:\n[ \t]*)?```", re.DOTALL)
_SERVICE_SECONDS = 600.0  # For the queue: a longer wait means a stuck service.
_PARAMETERS = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "Python code to run."}},
    "required": ["code"],
}


def python_tool(
    sandbox: Sandbox | SandboxClient, *, timeout: float, max_chars: int
) -> Tool:
    """Runs code in a fresh process; variables do not outlive the call.

    Args:
        sandbox: where the code runs.
        timeout: seconds of wall-clock time for one call, its wait for a slot apart.
        max_chars: of output; a longer one keeps its head and its tail, where the
            error is.

    Returns:
        A tool named "python" with one parameter, `code`. Statuses are those of
        `Execution`, with "memory" for an uncaught MemoryError too.
    """

    async def run(code: str) -> ToolResult:
        done = await sandbox.execute(unfenced(code), timeout=timeout, echo=True)
        return tool_result(done, max_chars=max_chars)

    return Tool(
        name="python",
        description=(
            "Runs Python code in a fresh interpreter and returns what it prints and"
            " the value of its last expression."
        ),
        parameters=_PARAMETERS,
        run=run,
        timeout=timeout + _SERVICE_SECONDS,
    )


def python_session_tool(
    sandbox: Sandbox | SandboxClient, *, timeout: float, max_chars: int
) -> Tool:
    """The same, with variables that live as long as the trajectory.

    Args and Returns as for `python_tool`. The tool must be opened, with `open_tools`,
    for each trajectory; a call of an unopened one raises RuntimeError.
    """

    async def unopened(code: str) -> ToolResult:
        raise RuntimeError("open_tools was not called for this trajectory")

    tool = Tool(
        name="python",
        description=(
            "Runs Python code and returns what it prints and the value of its last"
            " expression. Variables stay for later calls."
        ),
        parameters=_PARAMETERS,
        run=unopened,
        timeout=timeout + _SERVICE_SECONDS,
    )

    @contextlib.asynccontextmanager
    async def open_session() -> AsyncIterator[Tool]:
        async with sandbox.session() as session:

            async def run(code: str) -> ToolResult:
                done = await session.execute(unfenced(code), timeout=timeout)
                return tool_result(done, max_chars=max_chars)

            yield dataclasses.replace(tool, run=run, open=None)

    return dataclasses.replace(tool, open=open_session)


def unfenced(code: str) -> str:
    """The inside of the first fenced block, or all of the code if there is none."""
    found = _FENCE.search(code)
    return found.group(1) if found else code


def tool_result(done: Execution, *, max_chars: int) -> ToolResult:
    """What the model reads of an execution: both streams, then why it was stopped."""
    parts = [part.rstrip("\n") for part in (done.stdout, done.stderr)]
    text = cut_middle("\n".join(part for part in parts if part), max_chars)
    if done.message:
        text = f"{text}\n{done.message}" if text else done.message
    elif done.status == "error" and not text:
        text = f"Exit code {done.exit_code}, no output."
    return ToolResult(text or "No output.", _status(done))


def _status(done: Execution) -> CallStatus:
    last_line = done.stderr.rstrip().rpartition("\n")[2]
    if done.status == "error" and last_line.startswith("MemoryError"):
        return "memory"
    return done.status
