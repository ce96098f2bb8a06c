"""SFT data: a scripted teacher played over word problems, and what came out right."""

import asyncio
import pathlib
from collections.abc import Sequence

import numpy as np
from absl import logging

from agentic_jax.data.teacher import mixed_modes, play_teacher, write_trajectories
from agentic_jax.data.word_problems import TEACHER_MODES, teacher_turns, word_problems
from agentic_jax.monitor.progress import progress
from agentic_jax.recipe import Recipe
from agentic_jax.services import open_services
from agentic_jax.trajectory import Trajectory

FRACTIONS = (0.4, 0.45, 0.15)  # Of TEACHER_MODES: tool, direct, recovery.


def write_teacher_trajectories(
    recipe: Recipe,
    path: pathlib.Path,
    *,
    count: int,
    digits: Sequence[int],
    fractions: Sequence[float] = FRACTIONS,
) -> None:
    """Plays the teacher over training problems; writes what came out right.

    Args:
        recipe: of the SFT run that will train on them; gives model, chat and tools.
        path: JSONL file, replaced whole.
        count: problems played.
        digits: of the two factors.
        fractions: of TEACHER_MODES, summing to 1.
    """
    right = asyncio.run(_play(recipe, count, digits, fractions))
    logging.info("the teacher got %d of %d right; these are kept", len(right), count)
    write_trajectories(path, right)


async def _play(
    recipe: Recipe, count: int, digits: Sequence[int], fractions: Sequence[float]
) -> list[Trajectory]:
    """The trajectories that ended with the right answer."""
    seed = recipe.config["seed"]
    rng = np.random.default_rng([seed, 3])
    tasks = word_problems(split="train", count=count, seed=seed, digits=digits)
    modes = mixed_modes(count, dict(zip(TEACHER_MODES, fractions, strict=True)), rng)
    turns = {t.id: teacher_turns(t, m, rng) for t, m in zip(tasks, modes, strict=True)}
    model = recipe.model()
    async with open_services(recipe, model, params=model.params) as services:
        with progress("teacher", count, unit="trajectory") as advance:
            played = await play_teacher(
                [services.with_system(task) for task in tasks],
                turns,
                chat=services.chat,
                tools=services.tools,
                limits=services.limits,
                concurrency=services.rollout["concurrency"],
                on_done=lambda trajectory: advance(1),
            )
        scored = [await services.verify(trajectory) for trajectory in played]
    return [t for t in scored if t.stop == "answer" and t.score == 1.0]
