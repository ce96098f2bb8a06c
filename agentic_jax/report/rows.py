"""What the page shows of a trace: a line per trajectory, and the tokens of a group."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentic_jax.monitor.stats import mean
from agentic_jax.monitor.trace import token_texts

TOKEN_VALUES = ("entropy", "trainer_logprobs", "engine_logprobs", "advantage")
SNIPPET_CHARS = 160


def sample_line(row: Mapping[str, Any]) -> dict[str, Any]:
    """The line of one trajectory in the table of its step.

    Args:
        row: of a trace, as trace.write_trace wrote it.

    Returns:
        Plain values. Means are over sampled tokens, in nats; `staleness` is how many
        versions the oldest weights that sampled it are behind the step; `statuses` are
        those of its calls, in order.
    """
    tokens = row["tokens"]
    mask = np.asarray(tokens["mask"], bool)
    trainer, engine, entropy = (
        np.asarray(tokens[name], float)[mask]
        for name in ("trainer_logprobs", "engine_logprobs", "entropy")
    )
    calls = [call for turn in row["turns"] for call in turn["calls"]]
    versions = [turn["weight_version"] for turn in row["turns"]]
    return {
        "group": row["group"],
        "sample": row["sample"],
        "reward": round(row["reward"], 5),
        "score": row["score"],
        "stop": row["stop"],
        "tokens": int(np.count_nonzero(tokens["turn"])),
        "sampled": int(mask.sum()),
        "turns": len(row["turns"]),
        "statuses": [call["result"]["status"] for call in calls],
        "seconds": round(sum(call["seconds"] for call in calls), 3),
        "staleness": row["step"] - min(versions, default=row["step"]),
        "entropy": round(mean(entropy), 5),
        "logprob": round(mean(trainer), 5),
        "mismatch": round(float(np.abs(trainer - engine).max(initial=0.0)), 5),
    }


def group_line(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the samples of a group share: its problem, cut to a line, and its answer."""
    task = rows[0]["task"]
    problem = " ".join(task["messages"][-1]["content"].split())
    return {
        "group": rows[0]["group"],
        "task": task["id"],
        "domain": task["domain"],
        "problem": problem[:SNIPPET_CHARS],
        "answer": str(task["answer"])[:SNIPPET_CHARS],
    }


def sample_detail(row: Mapping[str, Any]) -> dict[str, Any]:
    """All that the page shows of one trajectory.

    Returns:
        `texts`, `mask`, `turn`, `ids` and the values named in TOKEN_VALUES, equally
        long and in order; `turns` with calls, the range of tokens that was sampled, the
        end of its results, and `entropy_change` (dH, see entropy_changes).

    Raises:
        ValueError: the row has no text per token.
    """
    tokens = row["tokens"]
    changes = entropy_changes(tokens, len(row["turns"]))
    turns = [
        {**turn, "entropy_change": change, "start": start, "results": results, "end": e}
        for turn, change, (start, results, e) in zip(
            row["turns"], changes, turn_ranges(tokens, len(row["turns"])), strict=True
        )
    ]
    return {
        "sample": row["sample"],
        "reward": row["reward"],
        "score": row["score"],
        "stop": row["stop"],
        "fault": row["fault"],
        "task": row["task"],
        "turns": turns,
        "texts": token_texts(row),
        **{name: tokens[name] for name in ("ids", "mask", "turn", *TOKEN_VALUES)},
    }


def turn_ranges(
    tokens: Mapping[str, Sequence], num_turns: int
) -> list[tuple[int, int, int]]:
    """For each turn: its first token, its first result token, and its end."""
    turn, mask = np.asarray(tokens["turn"], int), np.asarray(tokens["mask"], bool)
    first = np.searchsorted(turn, np.arange(1, num_turns + 2))
    return [
        (int(start), int(start + mask[start:end].sum()), int(end))
        for start, end in zip(first[:-1], first[1:], strict=True)
    ]


def entropy_changes(
    tokens: Mapping[str, Sequence], num_turns: int
) -> list[float | None]:
    """dH of each turn's calls, nats: H of the next turn less H of this one.

        dH_k = H(r_k) - H(r_{k-1}),  H(r) = mean entropy of the tokens sampled in a turn

    Returns:
        One value per turn; None for a turn after which nothing was sampled.
    """
    turn, mask = np.asarray(tokens["turn"], int), np.asarray(tokens["mask"], bool)
    entropy = np.asarray(tokens["entropy"], float)
    segments = [entropy[mask & (turn == k)] for k in range(1, num_turns + 1)]
    changes: list[float | None] = [
        round(float(after.mean() - before.mean()), 5)
        if len(before) and len(after)
        else None
        for before, after in zip(segments[:-1], segments[1:], strict=True)
    ]
    return [*changes, None][:num_turns]
