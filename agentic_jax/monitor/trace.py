"""trajectories/step_NNNNNN.jsonl: what was sampled, and what was made of it."""

import itertools
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from agentic_jax.batch import Scores
from agentic_jax.monitor.pieces import make_pieces
from agentic_jax.packing import Step
from agentic_jax.trajectory import Trajectory, to_json


def trace_rows(
    step: Step, *, scores: Scores, advantages: np.ndarray, most_groups: int
) -> list[dict]:
    """One JSON-able dict per sample, with token arrays over prompt and response.

    Args:
        step: packed samples.
        scores: NumPy, [B, T] of the same rows.
        advantages: [B, T] NumPy.
        most_groups: how many groups are kept, from the first.

    Returns:
        Rows with `group`, `sample`, `reward` and `tokens` beside what to_json has that
        is no array. `tokens` holds equally long lists, with the turn of each token;
        numbers have 5 decimals; engine and trainer values are 0 where mask is 0. A
        fault has empty lists: nothing of it was packed.
    """
    return [
        {
            "group": p,
            "sample": g,
            "reward": float(sample.reward),
            "tokens": _token_lists(step, (p, g), scores, advantages),
            **_without_arrays(sample.trajectory),
        }
        for p, group in enumerate(step.groups[:most_groups])
        for g, sample in enumerate(group)
    ]


def write_trace(
    workdir: pathlib.Path,
    step: int,
    rows: Sequence[dict],
    *,
    decode: Callable[[Sequence[int]], str],
) -> list[dict]:
    """Writes one JSON object a line, whole or not at all; returns what it wrote.

    Adds `step` and `text` to each row, and to its `tokens` the list `chars`: how many
    characters of the text each token brings. token_texts cuts the text by it.
    """
    path = trace_path(workdir, step)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    pieces = make_pieces(decode)
    written = []
    with temporary.open("w", encoding="utf-8") as file:
        for row in rows:
            texts = pieces(row["tokens"]["ids"])
            tokens = {**row["tokens"], "chars": [len(text) for text in texts]}
            row = {"step": step, **row, "tokens": tokens, "text": "".join(texts)}
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
            written.append(row)
    os.replace(temporary, path)
    return written


def read_trace(path: pathlib.Path) -> list[dict]:
    """The rows that write_trace wrote, split at newlines only."""
    return list(iterate_trace(path))


def iterate_trace(path: pathlib.Path) -> Iterator[dict]:
    """read_trace, one row in memory at a time."""
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            yield json.loads(line)


def token_texts(row: Mapping[str, Any]) -> list[str]:
    """The text of each token of a row; "" where it only ends a character begun before.

    Raises:
        ValueError: the row has no `chars`, as rows that write_trace did not write.
    """
    if "chars" not in row["tokens"]:
        raise ValueError(
            f"group {row['group']} sample {row['sample']} of step {row['step']} has no "
            "tokens.chars: write its trace with monitor.trace.write_trace"
        )
    borders = itertools.accumulate(row["tokens"]["chars"], initial=0)
    return [row["text"][a:b] for a, b in itertools.pairwise(borders)]


def trace_steps(workdir: pathlib.Path) -> list[int]:
    """The steps that have a trace, ascending."""
    paths = (pathlib.Path(workdir) / "trajectories").glob("step_*.jsonl")
    return sorted(int(path.stem.removeprefix("step_")) for path in paths)


def trace_path(workdir: pathlib.Path, step: int) -> pathlib.Path:
    """Where the trajectories of a step lie."""
    return pathlib.Path(workdir) / "trajectories" / f"step_{step:06d}.jsonl"


def drop_traces(workdir: pathlib.Path, *, from_step: int) -> None:
    """Removes the files of steps that a resumed run makes again."""
    for step in trace_steps(workdir):
        if step >= from_step:
            trace_path(workdir, step).unlink()


def _without_arrays(trajectory: Trajectory) -> dict[str, Any]:
    """to_json without the arrays that the token lists hold too, and without what only
    a verifier needs: unit tests may take megabytes."""
    record = to_json(trajectory)
    del record["prompt_token_ids"], record["task"]["extra"]
    arrays = ("token_ids", "logprobs", "result_token_ids")
    record["turns"] = [
        {key: value for key, value in turn.items() if key not in arrays}
        for turn in record["turns"]
    ]
    return record


def _token_lists(
    step: Step, place: tuple[int, int], scores: Scores, advantages: np.ndarray
) -> dict[str, list]:
    batch, outcome = step.batch, step.outcome
    row = outcome.row[place]
    here = (batch.segment_ids[row] == outcome.segment[place]) & outcome.valid[place]

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
