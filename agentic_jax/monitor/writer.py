"""Where metrics go: TensorBoard events and metrics.jsonl, cut back on resume."""

import json
import math
import os
import pathlib
import textwrap
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.histogram.summary_v2 import histogram_pb
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from agentic_jax.config import changed_keys

HISTOGRAMS = ("entropy", "trainer_logprobs", "advantage")  # Over sampled tokens.


class MetricWriter:
    """Writes one flat dict of `area/name` numbers a step.

    Args:
        directory: gets metrics.jsonl and TensorBoard event files.
        next_step: first step that will be written; rows of an earlier run from this
            step on are cut, so that a resumed run leaves one row a step.
    """

    def __init__(self, directory: pathlib.Path, *, next_step: int):
        self.path = pathlib.Path(directory) / "metrics.jsonl"
        keep_rows(self.path, before=next_step)
        self._rows = self.path.open("a", encoding="utf-8")
        self._events = EventFileWriter(str(pathlib.Path(directory) / "tensorboard"))
        if next_step:  # TensorBoard then drops what the cut rows had shown.
            restart = SessionLog(status=SessionLog.START)
            self._events.add_event(
                Event(wall_time=time.time(), step=next_step, session_log=restart)
            )

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Appends the row of one step; both files are flushed.

        Raises:
            ValueError: a value is NaN or infinite: name it, do not plot it.
        """
        bad = {k: v for k, v in metrics.items() if not math.isfinite(v)}
        if bad:
            raise ValueError(f"metrics of step {step} are not finite: {bad}")
        row = {"step": step, **{k: float(v) for k, v in sorted(metrics.items())}}
        self._rows.write(json.dumps(row) + "\n")
        self._rows.flush()
        values = [Summary.Value(tag=k, simple_value=v) for k, v in metrics.items()]
        self._add(step, Summary(value=values))
        self._events.flush()

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Puts the leaves of a nested config among TensorBoard's hyperparameters."""
        leaves = {key: new for key, (_, new) in changed_keys({}, config).items()}
        plain = {
            key: value if isinstance(value, bool | int | float | str) else str(value)
            for key, value in leaves.items()
        }
        self._add(0, hparams_pb(plain))

    def write_samples(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Adds texts and histograms of a step to TensorBoard.

        Args:
            step: that the rows are of.
            rows: as trace.write_trace returns them. The texts with the highest and the
                lowest reward are shown; the histograms are of reward, response tokens,
                and what HISTOGRAMS names.
        """
        if not rows:
            return
        ranked = sorted(rows, key=lambda row: row["reward"])
        for tag, row in {"best": ranked[-1], "worst": ranked[0]}.items():
            text = row["text"].encode("utf-8", "replace").decode()
            block = textwrap.indent(text, " " * 4, lambda line: True)  # Not Markdown.
            self._add(step, text_pb(f"samples/{tag}", block))
        values = {"reward": [row["reward"] for row in rows]}
        tokens = [row["tokens"] for row in rows]
        values["response_tokens"] = [np.count_nonzero(t["turn"]) for t in tokens]
        for name in HISTOGRAMS:
            sampled = [np.asarray(t[name])[np.asarray(t["mask"], bool)] for t in tokens]
            values[name] = np.concatenate(sampled)
        for name, data in values.items():
            self._add(step, histogram_pb(f"samples/{name}", data))

    def _add(self, step: int, summary: Summary) -> None:
        self._events.add_event(Event(wall_time=time.time(), step=step, summary=summary))

    def close(self) -> None:
        """Closes both files."""
        self._rows.close()
        self._events.close()


def read_metrics(path: pathlib.Path) -> list[dict[str, float]]:
    """The rows of a metrics.jsonl; a last line cut short by a crash is left out."""
    if not path.exists():
        return []
    rows = []
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        try:
            rows.extend([json.loads(line)] if line else [])
        except json.JSONDecodeError as error:
            if number < len(lines):
                raise ValueError(f"{path}, line {number}: {error}") from error
    return rows


def keep_rows(path: pathlib.Path, *, before: int) -> None:
    """Rewrites a metrics.jsonl with only the rows of steps < before."""
    rows = [row for row in read_metrics(path) if row["step"] < before]
    temporary = path.with_suffix(".tmp")
    temporary.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    os.replace(temporary, path)
