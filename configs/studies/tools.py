"""Calculators in place of the Python tool: cheap, out of order, or of no use.

They take the calls that the start has learned, print(a*b), run in this process, and
show what Python would. A sandbox would take more of the studies' time than training.
"""

import ast
import operator
import random
from collections.abc import Callable

from agentic_jax.tools.base import Tool
from agentic_jax.trajectory import ToolResult

_OPERATIONS = {ast.Mult: operator.mul, ast.Add: operator.add, ast.Sub: operator.sub}
_TRACEBACK = (
    'Traceback (most recent call last):\n  File "main.py", line 1, in <module>\n'
    "    {code}\n    ^^^^\nNameError: name '{name}' is not defined"
)
_UNCLOSED = (
    '  File "main.py", line 1\n    {code}\n         ^\n'
    "SyntaxError: '(' was never closed"
)
_MAX_CHARS = 160


def calculator() -> Tool:
    """Works."""
    return _python(_printed)


def noisy_calculator(*, failure_rate: float, seed: int) -> Tool:
    """Works, but each call fails with a probability, whatever its code.

    Which calls fail depends on the order in which they come in: two runs of one seed
    are alike in distribution only.

    Args:
        failure_rate: in [0, 1).
        seed: of the failures.
    """
    rng = random.Random(seed)

    def run(code: str) -> ToolResult:
        if rng.random() < failure_rate:
            text = _TRACEBACK.format(code=code, name="print")
            return ToolResult(text[:_MAX_CHARS], "error")
        return _printed(code)

    return _python(run)


def useless_calculator() -> Tool:
    """Takes any code and says the same."""
    return _python(lambda code: ToolResult("No output.", "ok"))


def _python(function: Callable[[str], ToolResult]) -> Tool:
    async def run(code: str) -> ToolResult:
        return function(code)

    return Tool(
        name="python",
        description="Runs Python code and returns what it prints.",
        parameters={
            "type": "object",
            "properties": {"code": {"type": "string"}},
            "required": ["code"],
        },
        run=run,
        timeout=10.0,
    )


def _printed(code: str) -> ToolResult:
    """What print(a*b) prints; what Python says of the mistakes the teacher makes."""
    try:
        call = ast.parse(code.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError):  # Unclosed, or a NUL, or too deep.
        return ToolResult(_UNCLOSED.format(code=code)[:_MAX_CHARS], "error")
    match call:
        case ast.Call(func=ast.Name(id="print"), args=[argument], keywords=[]):
            value = _value(argument)
        case ast.Call(func=ast.Name(id=name)):
            text = _TRACEBACK.format(code=code, name=name)
            return ToolResult(text[:_MAX_CHARS], "error")
        case _:
            value = None
    if value is None:
        return ToolResult("TypeError: only print(a*b) runs here", "error")
    return ToolResult(str(value), "ok")


def _value(node: ast.expr) -> int | None:
    """Of integers and *, +, - between two of them."""
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.BinOp(
            left=ast.Constant(value=int(a)), op=op, right=ast.Constant(value=int(b))
        ) if type(op) in _OPERATIONS:
            return _OPERATIONS[type(op)](a, b)
    return None
