"""Which trajectories become SFT data: one predicate a filter, and what scores them.

A filter takes (trajectory, chat, *, options) and says whether to keep. A scorer takes
the same, is async, and returns a number: higher is better.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from agentic_jax.chat.template import Chat
from agentic_jax.config import bind
from agentic_jax.trajectory import Trajectory


def correct(trajectory: Trajectory, chat: Chat, *, at_least: float) -> bool:
    """Whether the verifier's score is at least so high."""
    return (trajectory.score or 0.0) >= at_least


def well_formed(trajectory: Trajectory, chat: Chat) -> bool:
    """Whether it ended with an answer and every call could be read.

    A call that failed, or that named no tool there is, stays: how the teacher recovers
    is worth learning. A call that is not closed counts as one that cannot be read.
    """
    last = chat.turn_text(trajectory.turns[-1]) if trajectory.turns else ""
    return (
        trajectory.stop == "answer"
        and not chat.opens_call(last)
        and all(record.call.arguments is not None for record in trajectory.calls)
    )


def max_tokens(trajectory: Trajectory, chat: Chat, *, limit: int) -> bool:
    """Whether prompt, turns and results together have at most `limit` tokens."""
    return len(trajectory.token_ids) <= limit


async def http_scorer(
    trajectory: Trajectory, chat: Chat, *, url: str, timeout: float
) -> float:
    """What a service says of a trajectory, such as a process reward model.

    It is sent, as JSON,
        {"id", "messages", "answer", "turns": [{"text", "results": [text, ...]}, ...]}
    and answers {"score": number}.

    Args:
        trajectory: to be scored.
        chat: decodes it.
        url: of the service.
        timeout: seconds.

    Raises:
        OSError: it cannot be reached, is late, or answers with an error or nonsense.
    """
    task = trajectory.task
    body = {
        "id": task.id,
        "messages": [dict(message) for message in task.messages],
        "answer": task.answer,
        "turns": [
            {
                "text": chat.turn_text(turn),
                "results": [record.result.text for record in turn.calls],
            }
            for turn in trajectory.turns
        ],
    }
    limit = aiohttp.ClientTimeout(total=timeout)
    try:
        async with (
            aiohttp.ClientSession(timeout=limit) as http,
            http.post(url, json=body) as response,
        ):
            response.raise_for_status()
            score = (await response.json())["score"]
            return float(score)
    except (
        aiohttp.ClientError,
        TimeoutError,
        ValueError,
        KeyError,
        TypeError,
    ) as error:
        raise OSError(
            f"the scorer {url} failed on task {task.id}: {type(error).__name__}: "
            f"{error}; mend it and run the same command: it resumes"
        ) from error


FILTERS = {"correct": correct, "well_formed": well_formed, "max_tokens": max_tokens}
SCORERS = {"http": http_scorer}


def first_failed(
    trajectory: Trajectory, chat: Chat, filters: Mapping[str, Mapping[str, Any]]
) -> str:
    """The key of the first filter that drops the trajectory, "" if none does.

    They are asked in the order of their keys, since configs keep no other.

    Args:
        trajectory: to be judged.
        chat: of its tokens.
        filters: any key to {"name": a key of FILTERS or "module:function", options}.

    Raises:
        ValueError: an unknown name or option.
    """
    for key in sorted(filters):
        if not bind(filters[key], FILTERS)(trajectory, chat):
            return key
    return ""


def best_of_each(
    groups: Sequence[str], scores: Sequence[float], most: int
) -> list[int]:
    """Numbers of the `most` best of every group, ascending; ties go by order.

    Args:
        groups: name of the group of each.
        scores: of each.
        most: kept of a group; 0 keeps all.
    """
    ranked = sorted(range(len(scores)), key=lambda i: -scores[i])
    taken: dict[str, int] = {}
    kept = []
    for i in ranked:
        taken[groups[i]] = taken.get(groups[i], 0) + 1
        if not most or taken[groups[i]] <= most:
            kept.append(i)
    return sorted(kept)
