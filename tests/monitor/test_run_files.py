import contextlib
import threading

import pytest

from agentic_jax.monitor.run_files import RunFiles
from agentic_jax.monitor.trace import read_trace, trace_path, trace_steps
from agentic_jax.monitor.writer import read_metrics


def write(files, step, *, loss=1.0, make_truths=dict, **tokens):
    row = {"group": 0, "sample": 0, "reward": 1.0}
    lists = {"ids": [5], "mask": [1], "turn": [1], "advantage": [0.0]}
    lists |= {"entropy": [0.0], "trainer_logprobs": [0.0]}
    files.write(
        step,
        {"policy/loss": loss},
        make_truths=make_truths,
        make_rows=lambda: [{**row, "tokens": lists}],
        decode=lambda ids: "x" * len(ids),
    )


def steps_of(workdir):
    return [row["step"] for row in read_metrics(workdir / "metrics.jsonl")]


def test_a_step_is_written_while_the_caller_goes_on(tmp_path):
    going_on = threading.Event()

    def make_truths():
        assert going_on.wait(10)
        return {"truth/cut_calls": 2.0}

    with contextlib.closing(RunFiles(tmp_path, {}, first=0)) as files:
        write(files, 0, make_truths=make_truths)
        assert steps_of(tmp_path) == []
        going_on.set()
        files.wait()
        (row,) = read_metrics(tmp_path / "metrics.jsonl")
        assert row == {"step": 0, "policy/loss": 1.0, "truth/cut_calls": 2.0}
        assert read_trace(trace_path(tmp_path, 0))[0]["text"] == "x"
        write(files, 1)
    assert steps_of(tmp_path) == [0, 1]  # Closing waits.
    with contextlib.closing(RunFiles(tmp_path, {}, first=1)):
        assert steps_of(tmp_path) == [0] and trace_steps(tmp_path) == [0]


def test_what_went_wrong_is_raised_by_the_next_call(tmp_path):
    with contextlib.closing(RunFiles(tmp_path, {}, first=0)) as files:
        write(files, 0, loss=float("nan"))
        with pytest.raises(ValueError, match="metrics of step 0 are not finite"):
            write(files, 1)
    assert steps_of(tmp_path) == []
