import json

import pytest

from agentic_jax.services import SANDBOXES, make_tools
from agentic_jax.tools.base import Tool
from agentic_jax.trajectory import ToolResult
from tests.tools.test_base import limited

SANDBOX = object()
PYTHON = {"name": "python", "timeout": 5.0, "max_chars": 100}
FUNCTION = {
    "name": "function",
    "function": "tests.tools.test_functions:convert",
    "timeout": 5.0,
    "max_chars": 100,
}


def clock(*, zone: str) -> Tool:
    async def run():
        return ToolResult(zone, "ok")

    return Tool("clock", "Tells.", {"type": "object", "properties": {}}, run, 5.0)


def boxed(sandbox, *, label: str) -> Tool:
    async def run():
        return ToolResult(f"{label} {sandbox is SANDBOX}", "ok")

    return Tool(label, "Tells.", {"type": "object", "properties": {}}, run, 5.0)


def test_several_tools_by_table_module_and_plain_function(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"id": 1, "title": "Rome", "text": "A city."}))
    search = {"name": "search", "path": str(path), "k": 1, "max_chars": 50}
    specs = {
        "python": PYTHON,
        "search": search | {"timeout": 5.0, "max_calls": 1},
        "convert": FUNCTION,
        "clock": {"name": "tests.tools.test_make_tools:clock", "zone": "UTC"},
        "boxed": {"name": "tests.tools.test_make_tools:boxed", "label": "x"},
    }
    tools = make_tools(specs, SANDBOX)
    assert list(tools) == ["python", "search", "convert", "clock", "x"]
    once = ("search", {"query": "city"})
    calls = [[once, once, ("x", {}), ("clock", {}), ("convert", {"value": 1})]]
    assert limited({k: t for k, t in tools.items() if k != "python"}, *calls) == [
        ["ok", "bad_call", "ok", "ok", "ok"]
    ]


def test_only_tools_that_run_code_need_a_sandbox():
    assert "none" in SANDBOXES
    assert list(make_tools({"f": FUNCTION}, None)) == ["convert"]
    with pytest.raises(ValueError, match="tools.python runs code, but sandbox.name is"):
        make_tools({"python": PYTHON}, None)


def test_tools_without_sense_are_refused():
    with pytest.raises(ValueError, match="unknown name 'serch', did you mean 'search'"):
        make_tools({"s": {"name": "serch"}}, None)
    with pytest.raises(ValueError, match="has no option 'seconds'"):
        make_tools({"p": PYTHON | {"seconds": 1}}, SANDBOX)
    with pytest.raises(ValueError, match="tools.b: there is a tool 'convert' already"):
        make_tools({"a": FUNCTION, "b": FUNCTION}, None)
    with pytest.raises(ValueError, match="max_calls of convert is 0"):
        make_tools({"a": FUNCTION | {"max_calls": 0}}, None)
