"""Small trajectories, built by hand."""

import numpy as np

from agentic_jax.trajectory import (
    CallRecord,
    Sample,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
)

TASK = Task("t", ({"role": "user", "content": "2+2?"},), "4")


def turn(ids, results=(), statuses=(), version=0):
    calls = tuple(
        CallRecord(ToolCall("python", {"code": "1"}), ToolResult("1", status), 0.1)
        for status in statuses
    )
    logprobs = -np.arange(1, len(ids) + 1, dtype=np.float32)
    return Turn(
        np.array(ids, np.int32), logprobs, version, calls, np.array(results, np.int32)
    )


def trajectory(prompt, *turns, stop="answer", score=1.0, task=TASK):
    return Trajectory(task, np.array(prompt, np.int32), turns, stop, score)


def sample(prompt, *turns, reward=1.0, **kwargs):
    return Sample(trajectory(prompt, *turns, **kwargs), reward)


def parity_reward(score, trajectory):
    """A reward that differs within every group of a random policy."""
    ids = np.concatenate([turn.token_ids for turn in trajectory.turns])
    return float(np.mean(ids % 2))


async def parity_score(trajectory, services):
    """Right or wrong by chance, for a random policy."""
    return float(sum(turn.token_ids.sum() for turn in trajectory.turns) % 2)
