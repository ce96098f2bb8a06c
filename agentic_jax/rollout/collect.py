"""Groups of trajectories, several at once."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence

from agentic_jax.rollout.explore import independent, together
from agentic_jax.trajectory import Task, Trajectory, Turn

Play = Callable[..., Awaitable[Trajectory]]  # Of (task, prompt, sample, *turns).
Explore = Callable[[Callable, int, Sequence[int]], Awaitable[list[Trajectory]]]


async def collect(
    tasks: Sequence[Task],
    play: Play,
    *,
    group_size: int,
    concurrency: int,
    first_prompt: int = 0,
    explore: Explore = independent,
    seed: Sequence[int] = (),
    on_done: Callable[[Trajectory], None] = lambda trajectory: None,
) -> list[list[Trajectory]]:
    """One group of `group_size` trajectories per task, in the order of the tasks.

    Args:
        tasks: P problems.
        play: (task, prompt index, sample index) -> finished and scored trajectory. If
            `explore` branches, it takes the turns too that a trajectory goes on after.
        group_size: samples per problem.
        concurrency: most trajectories under way at one time; started group by group,
            so that the members of a group can share their prompt.
        first_prompt: index of the first task, where others play the ones before.
        explore: which trajectories make up a group; see rollout.explore.
        seed: numbers that its draws are keyed by, besides prompt, sample and turn.
        on_done: called after each finished trajectory, for progress.

    Raises:
        Exception: whatever `play` raises, after the others are cancelled.
    """
    slots = asyncio.Semaphore(concurrency)

    async def one(task: Task, p: int, g: int, *turns: Turn) -> Trajectory:
        async with slots:
            trajectory = await play(task, p, g, *turns)
        on_done(trajectory)
        return trajectory

    return await together(
        [
            explore(functools.partial(one, task, p), group_size, (*seed, p))
            for p, task in enumerate(tasks, start=first_prompt)
        ]
    )
