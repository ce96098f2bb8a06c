import asyncio

import pytest

from agentic_jax.tools.base import Tool, call_tool, limit_calls, open_tools
from agentic_jax.trajectory import ToolCall, ToolResult


async def show(**arguments):
    return ToolResult(repr(arguments), "ok")


def tool(name="show", **properties):
    schema = {"type": "object", "properties": properties, "required": []}
    return Tool(name, "Shows.", schema, show, timeout=5.0)


def call(tools, name="show", **arguments):
    return asyncio.run(call_tool(ToolCall(name, arguments), tools))


@pytest.mark.parametrize(
    "schema, value, fits",
    [
        ({"type": "string"}, "x", True),
        ({"type": "string"}, ["x"], False),
        ({"type": "integer"}, 1, True),
        ({"type": "integer"}, 1.5, False),
        ({"type": "integer"}, True, False),
        ({"type": "number"}, 1, True),
        ({"type": "number"}, False, False),
        ({"type": "boolean"}, True, True),
        ({"type": "boolean"}, 1, False),
        ({"type": "array"}, [1], True),
        ({"type": "array"}, "[1]", False),
        ({"type": "object"}, {}, True),
        ({"type": "object"}, None, False),
        ({"type": "string", "enum": ["a", "b"]}, "b", True),
        ({"type": "string", "enum": ["a", "b"]}, "c", False),
        ({}, None, True),
    ],
)
def test_arguments_are_checked_against_the_schema(schema, value, fits):
    result = call({"show": tool(x=schema)}, x=value)
    assert result.status == ("ok" if fits else "bad_call")
    if not fits:
        assert result.text.startswith("show: x must be ")


def test_unknown_tools_and_arguments_are_said_to_the_policy():
    tools = {"show": tool(x={"type": "string"}), "add": tool("add")}
    unknown = call(tools, "pyhton")
    assert unknown.text == "Unknown tool 'pyhton'. Available tools: add, show."
    assert unknown.status == "bad_call"
    extra = call(tools, y=1)
    assert extra.text == "show takes: x. Missing: [], unknown: ['y']."
    assert extra.status == "bad_call"


def limited(tools, *rounds):
    """Statuses of each round of calls, made at once; all in one trajectory."""

    async def play():
        async with open_tools(tools) as opened:
            return [
                [
                    result.status
                    for result in await asyncio.gather(
                        *(call_tool(ToolCall(n, a), opened) for n, a in calls)
                    )
                ]
                for calls in rounds
            ]

    return asyncio.run(play())


def test_calls_beyond_a_tools_own_limit_are_refused_in_order():
    show = limit_calls(tool(), 2)
    tools = {"show": show, "add": tool("add")}
    once = ("show", {})
    assert limited(tools, [once], [once, once], [once, ("add", {})]) == [
        ["ok"],
        ["ok", "bad_call"],
        ["bad_call", "ok"],
    ]
    assert limited(tools, [once]) == [["ok"]]  # Each trajectory counts anew.


def test_a_refused_call_counts_for_nothing_against_the_limit():
    tools = {"show": limit_calls(tool(x={"type": "string"}), 1)}
    calls = [[("show", {"x": 1})], [("show", {"x": "a"})], [("show", {"x": "a"})]]
    assert limited(tools, *calls) == [["bad_call"], ["ok"], ["bad_call"]]


def test_a_limit_below_one_is_refused():
    with pytest.raises(ValueError, match="max_calls of show is 0; at least 1"):
        limit_calls(tool(), 0)
