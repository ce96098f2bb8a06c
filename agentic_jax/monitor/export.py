"""A run as Parquet tables, for pandas and the like."""

import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from agentic_jax.monitor.trace import (
    iterate_trace,
    token_texts,
    trace_path,
    trace_steps,
)
from agentic_jax.monitor.writer import read_metrics

_KEYS = [("step", pa.int32()), ("group", pa.int32()), ("sample", pa.int32())]
_NUMBERS = pa.list_(pa.float32())
TRAJECTORIES = pa.schema(
    [
        *_KEYS,
        ("task_id", pa.string()),
        ("domain", pa.string()),
        ("problem", pa.string()),
        ("answer", pa.string()),
        ("reward", pa.float64()),
        ("score", pa.float64()),
        ("stop", pa.string()),
        ("fault", pa.string()),
        ("turns", pa.int32()),
        ("calls", pa.int32()),
        ("response_tokens", pa.int32()),
        ("sampled_tokens", pa.int32()),
        ("weight_version_min", pa.int32()),
        ("text", pa.string()),
        ("token_ids", pa.list_(pa.int32())),
        ("token_texts", pa.list_(pa.string())),
        ("token_turn", pa.list_(pa.int32())),
        ("token_mask", pa.list_(pa.bool_())),
        ("token_entropy", _NUMBERS),
        ("token_trainer_logprobs", _NUMBERS),
        ("token_engine_logprobs", _NUMBERS),
        ("token_advantage", _NUMBERS),
    ]
)
CALLS = pa.schema(
    [
        *_KEYS,
        ("turn", pa.int32()),
        ("call", pa.int32()),
        ("name", pa.string()),
        ("code", pa.string()),
        ("problem", pa.string()),
        ("status", pa.string()),
        ("seconds", pa.float64()),
        ("output", pa.string()),
    ]
)


def export_parquet(workdir: pathlib.Path, out: pathlib.Path) -> None:
    """Writes metrics.parquet, trajectories.parquet and calls.parquet.

    Metrics have a row per step and a column per metric. Trajectories have a row each;
    their token_ columns are equally long lists, which pandas.DataFrame.explode turns
    into a row per token. Calls have a row each, `turn` and `call` from 1. The tables
    join on step, group and sample. One step is in memory at a time.

    Args:
        workdir: of a run.
        out: folder, made if it is missing; files of an earlier export are replaced.

    Raises:
        ValueError: there are no metrics, or a trace has no text per token.
    """
    workdir, out = pathlib.Path(workdir), pathlib.Path(out)
    rows = read_metrics(workdir / "metrics.jsonl")
    if not rows:
        raise ValueError(f"{workdir} has no metrics.jsonl with a step in it")
    out.mkdir(parents=True, exist_ok=True)
    names = ["step", *sorted({name for row in rows for name in row} - {"step"})]
    columns = {name: [row.get(name) for row in rows] for name in names}
    pq.write_table(pa.table(columns), out / "metrics.parquet")
    with (
        pq.ParquetWriter(out / "trajectories.parquet", TRAJECTORIES) as trajectories,
        pq.ParquetWriter(out / "calls.parquet", CALLS) as calls,
    ):
        for step in trace_steps(workdir):
            traced = list(iterate_trace(trace_path(workdir, step)))
            records = [_trajectory(row) for row in traced]
            trajectories.write_table(pa.Table.from_pylist(records, TRAJECTORIES))
            records = [record for row in traced for record in _calls(row)]
            calls.write_table(pa.Table.from_pylist(records, CALLS))


def _trajectory(row: Mapping[str, Any]) -> dict[str, Any]:
    tokens, task = row["tokens"], row["task"]
    names = ("entropy", "trainer_logprobs", "engine_logprobs", "advantage", "turn")
    versions = [turn["weight_version"] for turn in row["turns"]]
    return {
        **{name: row[name] for name in ("step", "group", "sample", "reward", "score")},
        "task_id": task["id"],
        "domain": task["domain"],
        "problem": _plain(task["messages"][-1]["content"]),
        "answer": _plain(str(task["answer"])),
        "stop": row["stop"],
        "fault": _plain(row["fault"]),
        "turns": len(row["turns"]),
        "calls": sum(len(turn["calls"]) for turn in row["turns"]),
        "response_tokens": int(np.count_nonzero(tokens["turn"])),
        "sampled_tokens": sum(tokens["mask"]),
        "weight_version_min": min(versions, default=None),
        "text": _plain(row["text"]),
        "token_ids": tokens["ids"],
        "token_texts": [_plain(text) for text in token_texts(row)],
        "token_mask": [bool(m) for m in tokens["mask"]],
        **{f"token_{name}": tokens[name] for name in names},
    }


def _calls(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for k, turn in enumerate(row["turns"], start=1):
        for i, record in enumerate(turn["calls"], start=1):
            call, result = record["call"], record["result"]
            code = (call["arguments"] or {}).get("code")
            yield {
                **{name: row[name] for name in ("step", "group", "sample")},
                "turn": k,
                "call": i,
                "name": _plain(call["name"]),
                "code": None if code is None else _plain(str(code)),
                "problem": _plain(call["problem"]),
                "status": result["status"],
                "seconds": record["seconds"],
                "output": _plain(result["text"]),
            }


def _plain(text: str) -> str:
    """Text that UTF-8 can hold: lone surrogates become question marks."""
    return text.encode("utf-8", "replace").decode()
