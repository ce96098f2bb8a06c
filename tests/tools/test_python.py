import asyncio

import pytest

from agentic_jax.sandbox.client import Execution, Limits, Sandbox
from agentic_jax.tools.base import call_tool, open_tools
from agentic_jax.tools.python import (
    python_session_tool,
    python_tool,
    tool_result,
    unfenced,
)
from agentic_jax.trajectory import ToolCall


def call_all(*codes, timeout=10.0, max_chars=2000):
    async def calls():
        async with Sandbox(workers=2, limits=Limits(memory_mb=128)) as sandbox:
            tool = python_tool(sandbox, timeout=timeout, max_chars=max_chars)
            tools = {"python": tool}
            return [
                await call_tool(ToolCall("python", {"code": code}), tools)
                for code in codes
            ]

    return asyncio.run(calls())


def test_last_expression_is_echoed_and_assignments_are_not():
    shown, silent, none, fenced = call_all(
        "x = 3\nx + 4", "x = 3\ny = x", "print('a')\nNone", "```python\n1 + 1\n```"
    )
    assert (shown.text, shown.status) == ("7", "ok")
    assert (silent.text, silent.status) == ("No output.", "ok")
    assert none.text == "a"
    assert fenced.text == "2"


def test_traceback_shows_the_code_and_no_frame_of_ours():
    (result,) = call_all("def f(x):\n    return 1 / x\nprint('before')\nf(0)")
    assert result.status == "error"
    lines = result.text.splitlines()
    assert [line for line in lines if line.strip("~^ ")] == [
        "before",
        "Traceback (most recent call last):",
        '  File "main.py", line 4, in <module>',
        "    f(0)",
        '  File "main.py", line 2, in f',
        "    return 1 / x",
        "ZeroDivisionError: division by zero",
    ]


def test_warnings_do_not_hide_what_was_printed():
    (result,) = call_all("import warnings\nwarnings.warn('w')\nprint(42)")
    assert result.status == "ok"
    assert result.text.startswith("42\n")
    assert "UserWarning: w" in result.text


def test_limits_are_typed_and_said_in_words():
    late, big = call_all(
        "print('so far')\nwhile True: pass", "x = bytearray(1 << 30)", timeout=0.5
    )
    assert late.status == "timeout"
    assert late.text == "so far\nStopped: the time limit of 0.5 s was reached."
    assert big.status == "memory"
    assert big.text.endswith("MemoryError")


def test_long_output_keeps_head_and_tail():
    (result,) = call_all("print('h' + 'x' * 10_000_000 + 'Final answer: Paris')")
    assert result.text.startswith("hx")
    assert result.text.endswith("Final answer: Paris")
    assert "characters cut" in result.text
    assert len(result.text) < 2100


def test_code_that_is_not_text_is_a_bad_call():
    listed, unknown = ["__import__('os').system('touch x')"], {"cod": "1"}

    async def calls():
        async with Sandbox(workers=2) as sandbox:
            tools = {"python": python_tool(sandbox, timeout=30.0, max_chars=100)}
            for arguments in ({"code": listed}, unknown):
                yield await call_tool(ToolCall("python", arguments), tools)

    async def statuses():
        return [result.status async for result in calls()]

    assert asyncio.run(statuses()) == ["bad_call", "bad_call"]


@pytest.mark.parametrize(
    "code, inside",
    [
        ("```python\nx = 1\n```", "x = 1"),
        ("Look:\n```py\nx = 1\ny\n```\nDone.", "x = 1\ny"),
        ("```\nx\n```", "x"),
        ("s = '```'", "s = '```'"),
        ("x = 1", "x = 1"),
    ],
)
def test_fences_are_taken_off(code, inside):
    assert unfenced(code) == inside


def test_a_silent_failure_names_its_exit_code():
    done = Execution("", "", -9, "error", 0.1, 0.0)
    assert tool_result(done, max_chars=100).text == "Exit code -9, no output."


def test_a_session_keeps_variables_for_one_trajectory_only():
    async def trajectories():
        async with Sandbox(workers=2) as sandbox:
            tool = python_session_tool(sandbox, timeout=30.0, max_chars=500)
            plain = python_tool(sandbox, timeout=30.0, max_chars=500)
            texts = []
            for _ in range(2):
                async with open_tools({"python": tool, "fresh": plain}) as tools:
                    for name, code in (
                        ("python", "x = globals().get('x', 0) + 1"),
                        ("python", "x"),
                        ("fresh", "globals().get('x', 0)"),
                    ):
                        done = await call_tool(ToolCall(name, {"code": code}), tools)
                        texts.append(done.text)
            with pytest.raises(RuntimeError, match="open_tools"):
                await call_tool(ToolCall("python", {"code": "1"}), {"python": tool})
            return texts

    assert asyncio.run(trajectories()) == ["No output.", "1", "0"] * 2


def test_a_syntax_error_shows_the_code_and_not_our_parser():
    (result,) = call_all("print(12*34")
    assert result.text == (
        "  File \"main.py\", line 1\n    print(12*34\n         ^\nSyntaxError: '(' was"
        " never closed"
    )
