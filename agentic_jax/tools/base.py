"""What a tool is, and the boundary at which every call is made."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from agentic_jax.trajectory import ToolCall, ToolResult

_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


@dataclass(frozen=True)
class Tool:
    """A function that the policy may call.

    Attributes:
        name: as the policy writes it.
        description: one or two sentences for the policy.
        parameters: JSON schema of the arguments, an object with named properties.
        run: async; keyword arguments in, ToolResult out. The model's mistakes are
            results; faults of ours raise.
        timeout: seconds after which the tool's own service counts as stuck.
        open: for a tool that keeps state between the calls of one trajectory: an async
            context that yields the tool to use in it. None where there is no state.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[..., Awaitable[ToolResult]]
    timeout: float
    open: Callable[[], AbstractAsyncContextManager["Tool"]] | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """The entry that chat templates expect in their `tools` list."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": dict(self.parameters),
            },
        }


@contextlib.asynccontextmanager
async def open_tools(tools: Mapping[str, Tool]) -> AsyncIterator[dict[str, Tool]]:
    """The tools of one trajectory, by the same names; their state goes at its end."""
    async with contextlib.AsyncExitStack() as stack:
        opened = {}
        for name, tool in tools.items():
            if tool.open is not None:
                tool = await stack.enter_async_context(tool.open())
            opened[name] = tool
        yield opened


def limit_calls(tool: Tool, max_calls: int) -> Tool:
    """The tool, which answers no more than max_calls times in one trajectory.

    A further call is not run: its status is "bad_call" and the policy reads why. Calls
    that were refused for their arguments count for nothing.

    Raises:
        ValueError: max_calls is below 1.
    """
    if max_calls < 1:
        raise ValueError(f"max_calls of {tool.name} is {max_calls}; at least 1")

    @contextlib.asynccontextmanager
    async def open_limited() -> AsyncIterator[Tool]:
        async with open_tools({tool.name: tool}) as opened:
            inner, left = opened[tool.name], max_calls

            async def run(**arguments: Any) -> ToolResult:
                nonlocal left
                if left == 0:
                    text = f"{tool.name} may be called {max_calls} times, no more."
                    return ToolResult(text, "bad_call")
                left -= 1
                return await inner.run(**arguments)

            yield dataclasses.replace(inner, run=run)

    return dataclasses.replace(tool, open=open_limited)


async def call_tool(call: ToolCall, tools: Mapping[str, Tool]) -> ToolResult:
    """Runs one call. The model's mistakes come back as a result; our faults raise.

    Raises:
        TimeoutError: the tool outlived its own deadline, so its service is stuck.
        OSError: its service cannot be reached.
    """
    if call.problem:
        return ToolResult(call.problem, "bad_call")
    tool = tools.get(call.name)
    if tool is None:
        known = ", ".join(sorted(tools)) or "none"
        return ToolResult(
            f"Unknown tool {call.name!r}. Available tools: {known}.", "bad_call"
        )
    problem = _argument_problem(tool, call.arguments or {})
    if problem:
        return ToolResult(problem, "bad_call")
    async with asyncio.timeout(tool.timeout):
        return await tool.run(**call.arguments)


def _argument_problem(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """What is wrong with the arguments, in words for the model; "" if nothing."""
    properties = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", tuple(properties))
    missing = [name for name in required if name not in arguments]
    unknown = [name for name in arguments if name not in properties]
    if missing or unknown:
        wanted = ", ".join(properties)
        return f"{tool.name} takes: {wanted}. Missing: {missing}, unknown: {unknown}."
    for name, value in arguments.items():
        if not _fits(value, properties[name]):
            wanted = properties[name].get("enum") or properties[name]["type"]
            return f"{tool.name}: {name} must be {_in_words(wanted)}."
    return ""


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value is of the schema's type, and one of its enum if it has one."""
    if "enum" in schema:
        return value in schema["enum"]
    if isinstance(value, bool):  # Python's bool is an int, JSON's is not.
        return schema.get("type", "boolean") == "boolean"
    return isinstance(value, _TYPES.get(schema.get("type", ""), object))


def _in_words(wanted: str | list[Any]) -> str:
    if isinstance(wanted, str):
        return f"a JSON {wanted}"
    return f"one of {', '.join(map(repr, wanted))}"
