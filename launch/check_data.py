r"""Checks that the gold answers of a published problem set score 1.

    python -m launch.check_data --dataset=gsm8k --path=gsm8k_test.jsonl
    python -m launch.check_data --dataset=humaneval --path=humaneval.jsonl

Prints each task whose gold answer does not score 1, and a last line of counts; exits
with 1 if there is one.
"""

import asyncio
import sys
from collections.abc import Sequence

import numpy as np
from absl import flags

from agentic_jax.data.layouts import LAYOUTS, read_dataset
from agentic_jax.rewards import verifiers
from agentic_jax.rewards.grading import Grader, VerifierError
from agentic_jax.sandbox.client import Sandbox
from agentic_jax.trajectory import Task, Trajectory, Turn
from launch.flags import run

_DATASET = flags.DEFINE_enum("dataset", None, list(LAYOUTS), "Name of the set.")
_PATH = flags.DEFINE_string("path", "", "Its file; without one the hub is asked.")
_SPLIT = flags.DEFINE_string("split", "", "Of the hub, if not the usual one.")
_WORKERS = flags.DEFINE_integer("workers", 2, "Gradings at a time.", lower_bound=1)
_SHAPES = {  # How a verifier, with its default options, is told the answer.
    "math": "\\boxed{%s}",
    "choice": "\\boxed{%s}",
    "reasoning_gym": "\\boxed{%s}",
    "short_answer_f1": "<answer>%s</answer>",
    "short_answer_em": "<answer>%s</answer>",
    "unit_tests": "```python\n%s\n```",
}

_OPTIONS = {"unit_tests": {"timeout": 60.0}}  # Some gold programs take their time.


async def failures(
    tasks: Sequence[Task], *, workers: int
) -> list[tuple[Task, float | str]]:
    """The tasks whose gold answer does not score 1, each with its score or fault.

    Args:
        tasks: that name their verifier in extra["verifier"].
        workers: gradings at the same time.

    Raises:
        ValueError: a task names no known verifier.
    """
    grader = Grader(workers=workers)
    places = asyncio.Semaphore(2 * workers)
    try:
        async with Sandbox(workers=workers) as sandbox:
            services = verifiers.Services(
                decode=lambda ids: bytes(ids.tolist()).decode(),
                grader=grader,
                sandbox=sandbox,
            )

            async def score(task: Task) -> float | str:
                async with places:
                    try:
                        return await verifiers.by_task(
                            gold_trajectory(task), services, options=_OPTIONS
                        )
                    except VerifierError as error:
                        return f"{type(error).__name__}: {error}"

            scores = await asyncio.gather(*map(score, tasks))
    finally:
        grader.close()
    return [(t, s) for t, s in zip(tasks, scores, strict=True) if s != 1.0]


def gold_trajectory(task: Task) -> Trajectory:
    """A policy that writes the gold answer and nothing else, a token a byte.

    Raises:
        ValueError: the task names no verifier that is known here.
    """
    name = task.extra.get("verifier")
    if name not in _SHAPES:
        raise ValueError(f"task {task.id!r} names verifier {name!r}")
    text = _SHAPES[name] % task.answer
    ids = np.frombuffer(text.encode(), np.uint8).astype(np.int32)
    turn = Turn(ids, np.zeros(len(ids), np.float32), 0)
    return Trajectory(task, ids[:0], (turn,), "answer")


def main(argv):
    """Prints the exceptions and the counts."""
    tasks = read_dataset(_DATASET.value, path=_PATH.value, split=_SPLIT.value)
    unsolved = [task for task in tasks if not task.answer]
    checked = [task for task in tasks if task.answer]
    failed = asyncio.run(failures(checked, workers=_WORKERS.value))
    for task, score in failed:
        print(f"{task.id}: {score}, gold {task.answer[:100]!r}")
    good = len(checked) - len(failed)
    print(
        f"{_DATASET.value}: {good} of {len(checked)} gold answers score 1,"
        f" {len(unsolved)} tasks have none"
    )
    sys.exit(bool(failed))


if __name__ == "__main__":
    flags.mark_flag_as_required("dataset")
    run(main)
