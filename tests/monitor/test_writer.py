import json

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from agentic_jax.monitor.writer import MetricWriter, read_metrics


def write(directory, steps, *, next_step=0):
    writer = MetricWriter(directory, next_step=next_step)
    for step in steps:
        writer.write(step, {"b/y": step, "a/x": 0.5})
    writer.close()


def test_one_row_a_step_sorted_by_name_with_zeros_kept(tmp_path):
    write(tmp_path, [0, 1])
    lines = (tmp_path / "metrics.jsonl").read_text().split("\n")
    assert lines[0] == '{"step": 0, "a/x": 0.5, "b/y": 0.0}'
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [0, 1]


def test_a_resumed_run_leaves_one_row_a_step(tmp_path):
    write(tmp_path, range(5))
    write(tmp_path, range(3, 6), next_step=3)
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(6))


def test_a_last_line_cut_short_by_a_crash_is_dropped(tmp_path):
    write(tmp_path, [0, 1])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "a/')
    write(tmp_path, [2], next_step=2)
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == [0, 1, 2]


def test_a_malformed_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps({"step": 0}) + "\nbroken\n{}\n")
    with pytest.raises(ValueError, match="metrics.jsonl, line 2"):
        read_metrics(path)


def test_values_that_are_not_finite_are_named(tmp_path):
    writer = MetricWriter(tmp_path, next_step=0)
    with pytest.raises(ValueError, match="step 3 are not finite.*policy/loss"):
        writer.write(3, {"policy/loss": float("nan"), "a/x": 1.0})
    writer.close()


def test_tensorboard_reads_the_events_back(tmp_path):
    write(tmp_path, [0, 1])
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [e.value for e in events.Scalars("b/y")] == [0.0, 1.0]
