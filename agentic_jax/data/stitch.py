"""The stitched baseline: steps of a finished solution replaced by calls afterwards.

Nothing is run: a call's result is what the solution says, so it never errs, nobody ever
recovers, and no reasoning leads up to a call. "Demystifying RL in Agentic Reasoning"
(arXiv:2510.11701), section 3.1, finds such data worse than real trajectories.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentic_jax.chat.template import Chat
from agentic_jax.data.retell import tell, text_after_prompt
from agentic_jax.trajectory import CallRecord, ToolCall, ToolResult, Trajectory

_NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
_OPERATOR = r"\s*(?:[-+*/x×÷]|\\times|\\cdot|\\div)\s*"
_STEP = re.compile(
    rf"(?<![\w.\\])({_NUMBER}(?:{_OPERATOR}{_NUMBER})+)\s*=\s*({_NUMBER})(?![\d.,]*\d)"
)
_SPACING = re.compile(r"\s*([-+*/])\s*")
_SIGNS = {"x": "*", "×": "*", "\\times": "*", "\\cdot": "*", "÷": "/", "\\div": "/"}


@dataclass(frozen=True)
class Step:
    """A step of a solution that a call can stand for.

    Attributes:
        start, end: of the step within the text.
        code: of the call.
        result: what the call is said to print.
    """

    start: int
    end: int
    code: str
    result: str


def arithmetic_steps(text: str) -> list[Step]:
    r"""The steps "12 x 34 = 408" of a text, in order, each as print(12 * 34).

    Whole numbers and decimals, with +, -, *, /, and x or TeX's signs for them; no
    parentheses. Of a chain "2 + 3 = 5 = 4 + 1" only the first equality counts.
    """
    steps = []
    for found in _STEP.finditer(text):
        expression = found[1].replace(",", "")
        for sign, python in _SIGNS.items():
            expression = expression.replace(sign, python)
        spaced = _SPACING.sub(r" \1 ", expression)
        steps.append(
            Step(
                found.start(),
                found.end(),
                f"print({spaced})",
                found[2].replace(",", ""),
            )
        )
    return steps


def stitch(
    trajectory: Trajectory,
    *,
    chat: Chat,
    max_calls: int,
    steps: Callable[[str], Sequence[Step]] = arithmetic_steps,
) -> Trajectory | None:
    """The solution with its first steps as calls of the Python tool, never run.

    A turn ends where a step begins; the next one begins with the step's result and goes
    on as the solution does. Steps within thinking stay as they are.

    Args:
        trajectory: of one turn, a solution without calls.
        chat: with the tools that the policy will have; format "hermes" or
            "tagged_search".
        max_calls: most steps to replace, at least 1.
        steps: finds them in a text.

    Returns:
        A trajectory with the same score; None for a solution without a step.

    Raises:
        ValueError: several turns, max_calls below 1, or another format.
    """
    if len(trajectory.turns) != 1 or max_calls < 1:
        raise ValueError(
            f"{len(trajectory.turns)} turns, max_calls {max_calls}; stitching takes a "
            "solution in one turn and at least one call"
        )
    text = text_after_prompt(trajectory.turns[0], heard=chat, told=chat)
    thought = text.rfind("</think>")  # A call within thinking is none.
    found = [step for step in steps(text) if step.start > thought][:max_calls]
    if not found:
        return None
    said, begin = [], 0
    for step, before in zip(found, ["", *(s.result for s in found)], strict=False):
        written = before + text[begin : step.start] + _call(step.code, chat.format)
        call = ToolCall("python", {"code": step.code})
        said.append((written, (CallRecord(call, ToolResult(step.result, "ok"), 0.0),)))
        begin = step.end
    said.append((found[-1].result + text[begin:], ()))
    return tell(trajectory.task, said, chat=chat, score=trajectory.score)


def _call(code: str, format: str) -> str:
    """A call of the Python tool."""
    if format == "hermes":
        call = json.dumps({"name": "python", "arguments": {"code": code}})
        return f"<tool_call>\n{call}\n</tool_call>"
    if format == "tagged_search":
        return f"<python>{code}</python>"
    raise ValueError(
        f"chat.format is {format!r}; stitching writes calls within a text, which "
        "'hermes' and 'tagged_search' have"
    )
