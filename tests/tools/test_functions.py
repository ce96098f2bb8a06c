import asyncio
import threading
import time
from typing import Literal

import pytest

from agentic_jax.tools.base import call_tool
from agentic_jax.tools.functions import function_tool, parameters_of
from agentic_jax.trajectory import ToolCall

LATE = threading.Event()


def convert(
    value: float, unit: Literal["m", "ft"] = "m", *, digits: int | None = None
) -> str:
    """Converts a length.

    The result has the other unit.

    Args:
        value: what to convert,
            in its own unit.
        unit: of the value.

    Returns:
        Text.
    """
    return f"{value / 0.3048:.{digits or 1}f} ft" if unit == "m" else "?"


async def listing(names: list[str]) -> dict:
    """Counts names."""
    return {name: len(name) for name in names}


def failing(kind: str) -> str:
    """Fails."""
    kinds = {"value": ValueError, "file": FileNotFoundError, "exit": SystemError}
    raise kinds.get(kind, ConnectionResetError)(kind)


def slow() -> str:
    """Waits."""
    LATE.wait(30)
    return "late"


def run(function, *, timeout=20.0, max_chars=200, **arguments):
    tool = function_tool(function=function, timeout=timeout, max_chars=max_chars)
    call = ToolCall(tool.name, arguments)
    return asyncio.run(call_tool(call, {tool.name: tool}))


def test_the_schema_is_that_of_the_signature_and_the_docstring():
    tool = function_tool(function=convert, timeout=1.0, max_chars=9)
    assert (tool.name, tool.description) == ("convert", "Converts a length.")
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "value": {
                "type": "number",
                "description": "what to convert, in its own unit.",
            },
            "unit": {
                "type": "string",
                "enum": ["m", "ft"],
                "description": "of the value.",
            },
            "digits": {"type": "integer"},
        },
        "required": ["value"],
    }
    names = parameters_of(listing)["properties"]["names"]
    assert names == {"type": "array", "items": {"type": "string"}}


def test_functions_are_called_and_their_values_are_text():
    done = run(convert, value=3.048)
    assert (done.text, done.status) == ("10.0 ft", "ok")
    assert run(listing, names=["a", "bc"]).text == '{"a": 1, "bc": 2}'
    assert run(convert, value=1, unit="cm").status == "bad_call"
    assert run(convert, unit="m").status == "bad_call"


def test_a_config_names_a_function_by_its_module():
    assert run("tests.tools.test_functions:convert", value=3.048).text == "10.0 ft"
    for name in ("tests.tools.test_functions:convrt", "no_such_module:f", "convert"):
        with pytest.raises(ValueError, match="cannot import .*; write module:function"):
            function_tool(function=name, timeout=1.0, max_chars=9)


def test_what_a_function_raises_is_told_but_a_lost_connection_is_a_fault():
    done = run(failing, kind="value")
    assert (done.text, done.status) == ("ValueError: value", "error")
    assert run(failing, kind="file").status == "error"
    with pytest.raises(ConnectionResetError):
        run(failing, kind="connection")


def test_long_results_keep_head_and_tail():
    done = run(listing, names=["x" * 500], max_chars=60)
    assert done.text.startswith('{"xxx') and done.text.endswith("500}")
    assert "characters cut" in done.text


def test_a_late_function_is_stopped_waiting_for():
    started = time.monotonic()
    tool = function_tool(function=slow, timeout=0.05, max_chars=99)

    async def call():
        done = await call_tool(ToolCall("slow", {}), {"slow": tool})
        LATE.set()
        return done

    done = asyncio.run(call())
    assert (done.text, done.status) == ("Stopped after 0.05 s.", "timeout")
    assert time.monotonic() - started < 20


def test_functions_that_have_no_schema_are_refused():
    def unannotated(x):
        """Does."""

    def odd(x: bytes):
        """Does."""

    def mixed(x: int | str):
        """Does."""

    def starred(*x: int):
        """Does."""

    def silent(x: int):
        pass

    for function, problem in (
        (unannotated, "'x' of unannotated has no annotation"),
        (odd, "is annotated <class 'bytes'>; known: str"),
        (mixed, "is annotated"),
        (starred, "cannot be given by name"),
        (silent, "silent has no docstring"),
    ):
        with pytest.raises(ValueError, match=problem):
            parameters_of(function)
