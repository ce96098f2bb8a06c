import json

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.util.tensor_util import make_ndarray

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


def sample_row(reward, text, entropy):
    sampled = [int(i > 0) for i in range(len(entropy))]
    tokens = {"mask": sampled, "turn": sampled}
    tokens |= dict.fromkeys(("entropy", "trainer_logprobs", "advantage"), entropy)
    return {"reward": reward, "text": text, "tokens": tokens}


def test_tensorboard_shows_texts_histograms_and_hyperparameters(tmp_path):
    writer = MetricWriter(tmp_path, next_step=0)
    writer.write_config({"seed": 3, "kl": {"name": "none"}, "eval": {"k": [1, 8]}})
    rows = [sample_row(0.5, "a", [0, 2, 2]), sample_row(1.0, "<b>\n\ud800", [0, 1])]
    writer.write_samples(4, [*rows, sample_row(0.0, "", [])])
    writer.write_samples(5, [])
    writer.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    (best,) = events.Tensors("samples/best")
    assert best.step == 4
    assert best.tensor_proto.string_val[0] == b"    <b>\n    ?"
    (entropy,) = events.Tensors("samples/entropy")
    buckets = make_ndarray(entropy.tensor_proto)
    assert buckets[:, 2].sum() == 3  # The first token of each is not sampled.
    assert (buckets[0, 0], buckets[-1, 1]) == (1.0, 2.0)
    metadata = events.SummaryMetadata("_hparams_/session_start_info")
    plugin = HParamsPluginData.FromString(metadata.plugin_data.content)
    hparams = plugin.session_start_info.hparams
    assert hparams["seed"].number_value == 3
    assert hparams["kl.name"].string_value == "none"
    assert hparams["eval.k"].string_value == "[1, 8]"
