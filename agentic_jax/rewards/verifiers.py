"""From a finished trajectory to its correctness: what each verifier looks at."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from agentic_jax.rewards import answers, judge, programs
from agentic_jax.rewards.grading import Grader, VerifierError
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
    return 0.0 if prediction is None else answers.f1(prediction, _accepted(trajectory))


async def short_answer_em(
    trajectory: Trajectory, services: Services, *, extract: Extract = "answer_tag"
) -> float:
    """1 if the last answer is one of the accepted ones after normalisation, else 0.

    Accepted answers and errors as for short_answer_f1.
    """
    prediction = _extract(trajectory, services, extract)
    if prediction is None:
        return 0.0
    return float(answers.exact_match(prediction, _accepted(trajectory)))


async def unit_tests(
    trajectory: Trajectory,
    services: Services,
    *,
    timeout: float = 10.0,
    score: Literal["fraction", "all"] = "fraction",
) -> float:
    """How much of task.extra["tests"] the policy's last fenced program passes.

    Args:
        trajectory: a policy text without a fenced program scores 0.
        services: the sandbox, which must be open.
        timeout: seconds a test.
        score: "fraction" of the tests, or 1 only if they "all" pass.

    Raises:
        VerifierError: the sandbox failed: a fault, not a 0.
        ValueError: unknown option, no sandbox, or malformed tests.
    """
    if score not in ("fraction", "all"):
        raise ValueError(f"score is {score!r}; known: fraction, all")
    if services.sandbox is None:
        raise ValueError("unit_tests needs Services.sandbox; config.sandbox opens one")
    code = programs.extract_program(policy_text(trajectory, services.decode))
    if code is None:
        return 0.0
    tests = trajectory.task.extra["tests"]
    submissions = programs.submissions_of(code, tests, timeout=timeout)
    try:
        grades = await services.sandbox.grade(submissions)
    except OSError as error:
        raise VerifierError(f"the sandbox did not grade: {error}") from error
    passed = [test.passed for grade in grades for test in grade.tests]
    return float(all(passed)) if score == "all" else sum(passed) / len(passed)


async def reasoning_gym(
    trajectory: Trajectory,
    services: Services,
    *,
    extract: Extract = "boxed",
    timeout: float = 30.0,
) -> float:
    """What reasoning-gym's own scorer gives the last answer, in [0, 1].

    Args:
        trajectory: of a task that data.procedural made; no answer scores 0.
        services: the sandbox, whose Python has the library.
        extract: where the answer stands.
        timeout: seconds, with the library's import.

    Raises:
        VerifierError: the scorer did not end well: a fault, not a 0.
        ValueError: unknown option, or no sandbox.
    """
    prediction = _extract(trajectory, services, extract)
    if prediction is None:
        return 0.0
    if services.sandbox is None:
        raise ValueError("reasoning_gym needs Services.sandbox; see config.sandbox")
    problem = trajectory.task.extra["reasoning_gym"]
    code, token = programs.scoring_program(problem)
    try:
        done = await services.sandbox.execute(code, timeout=timeout, stdin=prediction)
    except OSError as error:
        raise VerifierError(f"the sandbox did not score: {error}") from error
    printed, _, score = done.stdout.rstrip().rpartition("\n")[2].partition(" ")
    if done.status != "ok" or printed != token:
        reason = done.message or done.stderr[-500:]
        raise VerifierError(f"scoring {prediction[:80]!r}: {done.status}: {reason}")
    return min(max(float(score), 0.0), 1.0)


async def judged(
    trajectory: Trajectory,
    services: Services,
    *,
    url: str,
    model: str,
    extract: Literal["boxed", "answer_tag", "last_turn"] = "answer_tag",
    timeout: float = 60.0,
    max_tokens: int = 1_024,
) -> float:
    """1 if a language model finds the last answer equal to the task's, else 0.

    Accepted answers as for short_answer_f1; no answer scores 0 and asks nobody.

    Args:
        trajectory: only what the policy sampled is shown, never a tool's output.
        services: decode.
        url: of a server with /v1/chat/completions, as SGLang or launch.serve_engine.
        model: name that the server knows it by.
        extract: where the answer stands; "last_turn" takes all of the last turn.
        timeout: seconds of one request.
        max_tokens: of the judge's reply.

    Raises:
        VerifierError: the judge was not reached or gave no verdict: a fault, not a 0.
        ValueError: unknown option.
    """
    if extract == "last_turn":
        last = trajectory.turns[-1:]
        prediction = services.decode(last[0].token_ids) if last else None
    else:
        prediction = _extract(trajectory, services, extract)
    if not (prediction or "").strip():
        return 0.0
    task = trajectory.task
    return await judge.judge_answer(
        question="\n\n".join(
            m["content"] for m in task.messages if m["role"] == "user"
        ),
        answer=prediction,
        references=_accepted(trajectory),
        url=url,
        model=model,
        timeout=timeout,
        max_tokens=max_tokens,
    )


async def by_task(
    trajectory: Trajectory,
    services: Services,
    *,
    options: Mapping[str, Mapping[str, Any]],
) -> float:
    """The score of the verifier that the task names in extra["verifier"].

    Args:
        trajectory: whose task names a key of VERIFIERS.
        services: what that verifier needs.
        options: verifier name to its options; those that are not there take none.

    Raises:
        VerifierError: as that verifier.
        ValueError: the task names no verifier, or an unknown one or option.
    """
    name = trajectory.task.extra.get("verifier")
    if name not in VERIFIERS:
        raise ValueError(
            f"task {trajectory.task.id!r} names verifier {name!r}; known:"
            f" {', '.join(VERIFIERS)}"
        )
    return await VERIFIERS[name](trajectory, services, **options.get(name, {}))


VERIFIERS = {
    "math": math,
    "choice": choice,
    "short_answer_f1": short_answer_f1,
    "short_answer_em": short_answer_em,
    "unit_tests": unit_tests,
    "reasoning_gym": reasoning_gym,
    "judge": judged,
    "by_task": by_task,
}


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


def _accepted(trajectory: Trajectory) -> list[str]:
    """Every answer that counts as right."""
    task = trajectory.task
    return task.extra.get("answers") or [task.answer]
