import asyncio

import pytest

from agentic_jax.rollout.collect import collect
from tests.fakes import trajectory, turn

TASKS = ["a", "b", "c"]


def test_groups_come_in_the_order_of_the_tasks_whatever_finishes_first():
    async def play(task, p, g):
        for _ in range((5 - p) * (3 - g)):
            await asyncio.sleep(0)
        return trajectory([p + 1], turn([g + 1]))

    done = []
    groups = asyncio.run(
        collect(TASKS, play, group_size=2, concurrency=3, on_done=done.append)
    )
    ids = [[t.token_ids.tolist() for t in group] for group in groups]
    assert ids == [[[p, g] for g in (1, 2)] for p in (1, 2, 3)]
    assert len(done) == 6


def test_no_more_than_the_given_number_is_under_way():
    running, most = 0, 0

    async def play(task, p, g):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return trajectory([1], turn([2]))

    asyncio.run(collect(TASKS, play, group_size=4, concurrency=5))
    assert most == 5


def test_an_error_of_ours_stops_everything_and_is_raised_as_it_is():
    cancelled = []

    async def play(task, p, g):
        if (p, g) == (1, 0):
            raise ValueError("bad task")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append((p, g))
            raise

    with pytest.raises(ValueError, match="bad task"):
        asyncio.run(collect(TASKS, play, group_size=2, concurrency=6))
    assert len(cancelled) == 5
