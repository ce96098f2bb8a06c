"""Groups of trajectories, several at once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from agentic_jax.trajectory import Task, Trajectory

Play = Callable[[Task, int, int], Awaitable[Trajectory]]


async def collect(
    tasks: Sequence[Task],
    play: Play,
    *,
    group_size: int,
    concurrency: int,
    first_prompt: int = 0,
    on_done: Callable[[Trajectory], None] = lambda trajectory: None,
) -> list[list[Trajectory]]:
    """One group of `group_size` trajectories per task, in the order of the tasks.

    Args:
        tasks: P problems.
        play: (task, prompt index, sample index) -> finished and scored trajectory.
        group_size: samples per problem.
        concurrency: most trajectories under way at one time; started group by group,
            so that the members of a group can share their prompt.
        first_prompt: index of the first task, where others play the ones before.
        on_done: called after each finished trajectory, for progress.

    Raises:
        Exception: whatever `play` raises, after the others are cancelled.
    """
    slots = asyncio.Semaphore(concurrency)

    async def one(task: Task, p: int, g: int) -> Trajectory:
        async with slots:
            trajectory = await play(task, p, g)
        on_done(trajectory)
        return trajectory

    try:
        async with asyncio.TaskGroup() as running:
            groups = [
                [running.create_task(one(task, p, g)) for g in range(group_size)]
                for p, task in enumerate(tasks, start=first_prompt)
            ]
    except* Exception as errors:
        raise errors.exceptions[0] from None
    return [[sample.result() for sample in group] for group in groups]
