"""A run's metrics and trajectories, written while its next step is under way."""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from agentic_jax.monitor import trace, truth
from agentic_jax.monitor.writer import MetricWriter


class RunFiles:
    """Writes one step at a time in a thread of its own.

    Args:
        workdir: gets metrics.jsonl, TensorBoard events and trajectories/.
        config: of the run, shown among TensorBoard's hyperparameters.
        first: step that is written first; what stands there of it and of later ones is
            removed.
    """

    def __init__(self, workdir: pathlib.Path, config: Mapping[str, Any], *, first: int):
        self._workdir = workdir
        self._writer = MetricWriter(workdir, next_step=first)
        if not first:
            self._writer.write_config(config)
        trace.drop_traces(workdir, from_step=first)
        self._thread = ThreadPoolExecutor(1, "files")
        self._pending: Future | None = None

    def write(
        self,
        step: int,
        metrics: Mapping[str, float],
        *,
        make_truths: Callable[[], Mapping[str, float]],
        make_rows: Callable[[], list[dict]],
        decode: Callable[[Sequence[int]], str],
    ) -> None:
        """Waits for the step before, and begins with this one.

        Args:
            step: number of the row.
            metrics: of the step.
            make_truths: () -> more metrics, made in the thread.
            make_rows: () -> rows of the trace, made in the thread.
            decode: ids to text.

        Raises:
            ValueError: a metric of the step before was not finite.
            OSError: the step before could not be written.
        """
        self.wait()
        self._pending = self._thread.submit(
            self._write, step, metrics, make_truths, make_rows, decode
        )

    def wait(self) -> None:
        """Returns when all is on disk; raises like write."""
        pending, self._pending = self._pending, None
        if pending:
            pending.result()

    def close(self) -> None:
        """Waits, and closes the files."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()
            self._writer.close()

    def _write(self, step, metrics, make_truths, make_rows, decode) -> None:
        metrics = {**metrics, **make_truths()}
        truth.warn(metrics)
        rows = trace.write_trace(self._workdir, step, make_rows(), decode=decode)
        self._writer.write_samples(step, rows)
        self._writer.write(step, metrics)
