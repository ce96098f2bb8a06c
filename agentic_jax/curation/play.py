"""Rollouts that a killed curation does not repeat."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import numpy as np

from agentic_jax.data.tasks import fingerprint
from agentic_jax.data.teacher import scripted_player
from agentic_jax.data.word_problems import (
    TEACHER_MODES,
    teacher_turns,
    written_solution,
)
from agentic_jax.journal import Journal
from agentic_jax.monitor.progress import progress
from agentic_jax.recipe import Recipe
from agentic_jax.rollout.collect import Play
from agentic_jax.services import Services, make_player
from agentic_jax.trajectory import Task, Trajectory


def engine_player(services: Services, *, seed: int, with_tools: bool) -> Play:
    """The recipe's own engine, sampling as its `rollout` section says."""
    return make_player(
        services,
        purpose="curate",
        step=0,
        seed=seed,
        with_tools=with_tools,
        sampling=services.rollout,
    )


def word_problem_player(
    services: Services, *, seed: int, with_tools: bool, fractions: Mapping[str, float]
) -> Play:
    """The scripted teacher of data.word_problems, its calls really run.

    Args:
        services: open; their engine is not asked.
        seed: of what it does with each problem.
        with_tools: False writes solutions out in words.
        fractions: of word_problems.TEACHER_MODES, summing to 1.

    Raises:
        ValueError: other modes or another sum.
    """
    if set(fractions) != set(TEACHER_MODES) or abs(sum(fractions.values()) - 1) > 1e-6:
        raise ValueError(
            f"fractions {dict(fractions)}; wanted of {', '.join(TEACHER_MODES)}, sum 1"
        )

    def say(task: Task, g: int) -> Sequence[str]:
        if not with_tools:
            return [written_solution(task)]
        rng = np.random.default_rng([seed, zlib.crc32(task.id.encode()), g])
        mode = rng.choice(TEACHER_MODES, p=[fractions[m] for m in TEACHER_MODES])
        return teacher_turns(task, str(mode), rng)

    scripted = scripted_player(
        say, chat=services.chat, tools=services.tools, limits=services.limits
    )

    async def play(task: Task, p: int, g: int) -> Trajectory:
        return await services.verify(await scripted(services.with_system(task), p, g))

    return play


PLAYERS: dict[str, Callable[..., Play]] = {
    "engine": engine_player,
    "word_problems": word_problem_player,
}


def identity(
    recipe: Recipe, tasks: Sequence[Task], player: Mapping[str, Any], **more: Any
) -> dict[str, Any]:
    """What rollouts depend on: where it changed, none of them may be taken over.

    Servers, concurrency and how many problems and samples are wanted may change.
    """
    config = recipe.config
    keys = ("seed", "model", "chat", "tools", "verifier")
    sampling = {k: v for k, v in config["rollout"].items() if k != "concurrency"}
    return {
        **{key: config[key] for key in keys},
        "rollout": sampling,
        "tasks": fingerprint(tasks),
        "player": player,
        **more,
    }


async def play_missing(
    tasks: Sequence[Task],
    play: Play,
    journal: Journal,
    *,
    samples: int,
    concurrency: int,
    max_fault_fraction: float,
    record: Callable[[Trajectory], Any],
) -> int:
    """Plays what the journal lacks, and adds each trajectory as it ends.

    A trajectory that a fault of ours ended is not added: a later run plays it again.

    Args:
        tasks: P problems.
        play: (task, prompt index, sample index) -> finished and scored trajectory.
        journal: pieces are (prompt index, sample index).
        samples: of each problem.
        concurrency: most trajectories under way.
        max_fault_fraction: of the trajectories played now.
        record: what the journal keeps of one.

    Returns:
        How many were lost to faults.

    Raises:
        RuntimeError: more than allowed were.
        Exception: whatever `play` raises.
    """
    pairs = [(p, g) for p in range(len(tasks)) for g in range(samples)]
    missing = [pair for pair in pairs if pair not in journal]
    waiting = iter(missing)
    faults: list[str] = []

    async def work() -> None:
        for p, g in waiting:
            trajectory = await play(tasks[p], p, g)
            if trajectory.stop == "fault":
                faults.append(trajectory.fault)
                _check_faults(faults, len(missing), max_fault_fraction)
            else:
                journal.add((p, g), record(trajectory))
            advance(1)

    done = len(pairs) - len(missing)
    with progress("curate", len(pairs), unit="trajectory", initial=done) as advance:
        await in_parallel(work, min(concurrency, len(missing)))
    return len(faults)


async def in_parallel(work: Callable[[], Awaitable[None]], workers: int) -> None:
    """Runs so many workers until all have returned.

    Raises:
        Exception: the first that one of them raises, after the others are cancelled.
    """
    try:
        async with asyncio.TaskGroup() as running:
            for _ in range(workers):
                running.create_task(work())
    except* Exception as errors:
        raise errors.exceptions[0] from None


def _check_faults(faults: Sequence[str], total: int, most: float) -> None:
    if len(faults) > most * total:
        raise RuntimeError(
            f"{len(faults)} of {total} trajectories were lost to faults, "
            f"max_fault_fraction allows {most:g}; the first: {faults[0]}. Mend it and "
            "run the same command: it resumes"
        )
