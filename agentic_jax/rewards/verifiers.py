"""From a finished trajectory to its correctness: what each verifier looks at."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from agentic_jax.rewards import answers
from agentic_jax.rewards.grading import Grader
from agentic_jax.trajectory import Trajectory

Extract = Literal["boxed", "answer_tag"]


@dataclass(frozen=True)
class Services:
    """What verifiers may use.

    Attributes:
        decode: token ids to text, special tokens kept.
        grader: compares mathematical answers.
        sandbox: runs code, or None where no verifier needs it.
    """

    decode: Callable[[np.ndarray], str]
    grader: Grader | None = None
    sandbox: Any = None


async def math(
    trajectory: Trajectory,
    services: Services,
    *,
    extract: Extract = "boxed",
    equality: Literal["strict", "equivalent"] = "equivalent",
    last_chars: int | None = None,
) -> float:
    """1 if the policy's last answer equals the task's, else 0; no answer is wrong.

    Args:
        trajectory: only what the policy sampled is read, never a tool's output.
        services: decode, and the grader for "equivalent".
        extract: where the answer stands, the last box or the last <answer> tag.
        equality: "strict" compares characters, as the papers do; "equivalent" is
            answers.equal_math.
        last_chars: look for a box in this many characters at the end only; the papers'
            strict mode has 100.

    Raises:
        VerifierError: the comparison took too long or broke: a fault, not a 0.
        ValueError: unknown option.
    """
    prediction = _extract(trajectory, services, extract, last_chars)
    gold = trajectory.task.answer
    if equality not in ("strict", "equivalent"):
        raise ValueError(f"equality is {equality!r}; known: strict, equivalent")
    if prediction is None:
        return 0.0
    if equality == "strict":
        return float(answers.equal_strict(prediction, gold))
    if services.grader is None:
        raise ValueError("equality 'equivalent' needs Services.grader")
    return float(await services.grader.grade(prediction, gold))


async def choice(
    trajectory: Trajectory, services: Services, *, extract: Extract = "boxed"
) -> float:
    """1 if the last answer is the letter of the right option, else 0.

    Raises:
        ValueError: unknown option.
    """
    prediction = _extract(trajectory, services, extract)
    if prediction is None:
        return 0.0
    return float(answers.equal_choice(prediction, trajectory.task.answer))


async def short_answer_f1(
    trajectory: Trajectory, services: Services, *, extract: Extract = "answer_tag"
) -> float:
    """Token F1 of the last answer with the best of the accepted ones, in [0, 1].

    The accepted answers are task.extra["answers"], or task.answer alone. No answer
    scores 0.

    Raises:
        ValueError: unknown option.
    """
    prediction = _extract(trajectory, services, extract)
    task = trajectory.task
    if prediction is None:
        return 0.0
    return answers.f1(prediction, task.extra.get("answers", (task.answer,)))


VERIFIERS = {"math": math, "choice": choice, "short_answer_f1": short_answer_f1}


def policy_text(trajectory: Trajectory, decode: Callable[[np.ndarray], str]) -> str:
    """What the policy wrote, turn by turn, without a word of any tool or prompt.

    Turns are decoded apart and joined by a newline, so that no answer is made of pieces
    on both sides of a tool result.
    """
    return "\n".join(decode(turn.token_ids) for turn in trajectory.turns)


def _extract(
    trajectory: Trajectory,
    services: Services,
    extract: str,
    last_chars: int | None = None,
) -> str | None:
    """The policy's last answer, or None."""
    text = policy_text(trajectory, services.decode)
    if extract == "boxed":
        return answers.extract_boxed(text, last_chars=last_chars)
    if extract == "answer_tag":
        return answers.extract_tag(text, "answer")
    raise ValueError(f"extract is {extract!r}; known: boxed, answer_tag")
