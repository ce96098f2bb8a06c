"""trajectories/step_NNNNNN.jsonl: what was sampled, and what was made of it."""

import json
import os
import pathlib
from collections.abc import Callable, Sequence

import numpy as np

from agentic_jax.batch import Batch, Outcome, Scores
from agentic_jax.trajectory import Sample, to_json


def trace_rows(
    groups: Sequence[Sequence[Sample]],
    *,
    decode: Callable[[np.ndarray], str],
    batch: Batch,
    outcome: Outcome,
    scores: Scores,
    advantages: np.ndarray,
) -> list[dict]:
    """One JSON-able dict per sample, token arrays over prompt and response.

    Args:
        groups: the packed groups, in the order of `outcome`.
        decode: token ids to text, special tokens kept.
        batch, scores, advantages: [B, T] NumPy arrays of the whole step.
        outcome: [P, G]; says where each sample lies.

    Returns:
        Rows with `group`, `sample`, `reward`, `text` and `tokens` beside the fields of
        to_json. `tokens` holds equally long lists; numbers have 5 decimals; engine and
        trainer values are 0 where mask is 0. A fault has empty lists: nothing of it
        was packed.
    """
    return [
        {
            "group": p,
            "sample": g,
            "reward": float(sample.reward),
            "text": decode(sample.trajectory.token_ids),
            "tokens": _token_lists(p, g, batch, outcome, scores, advantages),
            **to_json(sample.trajectory),
        }
        for p, group in enumerate(groups)
        for g, sample in enumerate(group)
    ]


def write_trace(path: pathlib.Path, rows: Sequence[dict]) -> None:
    """Writes one JSON object a line, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
    os.replace(temporary, path)


def read_trace(path: pathlib.Path) -> list[dict]:
    """The rows that write_trace wrote, split at newlines only."""
    with path.open(encoding="utf-8", newline="\n") as file:
        return [json.loads(line) for line in file]


def _token_lists(p, g, batch, outcome, scores, advantages) -> dict[str, list]:
    row = outcome.row[p, g]
    here = (batch.segment_ids[row] == outcome.segment[p, g]) & outcome.valid[p, g]

    def numbers(values: np.ndarray) -> list[float]:
        return [round(float(x), 5) for x in values[row][here]]

    return {
        "ids": batch.tokens[row][here].tolist(),
        "mask": batch.mask[row][here].astype(int).tolist(),
        "turn": batch.turn_ids[row][here].tolist(),
        "engine_logprobs": numbers(batch.behavior_logprobs),
        "trainer_logprobs": numbers(scores.logprobs),
        "entropy": numbers(scores.entropy),
        "advantage": numbers(advantages),
    }
