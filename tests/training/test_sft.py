import json

import jax
import numpy as np
import pytest

from agentic_jax.data.teacher import mixed_modes, write_trajectories
from agentic_jax.monitor.writer import read_metrics
from agentic_jax.recipe import build_sft
from agentic_jax.sources import toy
from agentic_jax.training import sft
from configs import quickstart_sft
from tests.fakes import trajectory, turn


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "teacher.jsonl"
    rng = np.random.default_rng(0)
    write_trajectories(
        path,
        [
            trajectory(rng.integers(20, 99, 4), turn(rng.integers(20, 99, n)))
            for n in rng.integers(2, 20, size=10)
        ],
    )
    return path


def tiny(teacher, **changes):
    config = quickstart_sft.get_config("tiny")
    config.trajectories = str(teacher)
    for key, value in changes.items():
        config[key] = value
    return build_sft(config)


def test_the_loss_falls_and_a_restart_changes_nothing(teacher, tmp_path):
    _, straight = sft.train(tiny(teacher, num_steps=6), workdir=tmp_path / "a")
    sft.train(tiny(teacher, num_steps=3), workdir=tmp_path / "b")
    _, resumed = sft.train(tiny(teacher, num_steps=6), workdir=tmp_path / "b")
    jax.tree.map(np.testing.assert_array_equal, straight, resumed)
    losses = [r["sft/loss"] for r in read_metrics(tmp_path / "a" / "metrics.jsonl")]
    again = [r["sft/loss"] for r in read_metrics(tmp_path / "b" / "metrics.jsonl")]
    assert losses == again
    assert losses[-1] < losses[0]
    assert (tmp_path / "b" / "model" / "chat_template.jinja").exists()


def test_a_bad_line_is_named(teacher, tmp_path):
    path = tmp_path / "broken.jsonl"
    path.write_text(teacher.read_text() + json.dumps({"task": 1}) + "\n")
    with pytest.raises(ValueError, match="broken.jsonl, line 11: not a trajectory"):
        sft.read_trajectories(path)


def test_an_empty_file_is_an_error(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(ValueError, match="holds no trajectory"):
        sft.read_trajectories(tmp_path / "empty.jsonl")


def test_trajectories_of_another_tokenizer_are_refused(tmp_path):
    path = tmp_path / "foreign.jsonl"
    write_trajectories(path, [trajectory([5], turn([70_000]))])
    with pytest.raises(ValueError, match="token id 70000, the model's vocabulary ends"):
        sft.train(tiny(path), workdir=tmp_path / "run")


def test_each_epoch_draws_every_trajectory_once():
    trajectories = [trajectory([i], turn([i])) for i in range(10)]
    config = {"seed": 0, "trajectories_per_step": 4}
    drawn = [
        int(t.prompt_token_ids[0])
        for step in range(5)
        for t in sft._drawn(trajectories, config, step)
    ]
    assert sorted(drawn[:10]) == sorted(drawn[10:]) == list(range(10))
    assert drawn[:10] != drawn[10:]


def test_the_written_model_is_read_back_whole(tmp_path):
    model = toy(width=64, num_layers=2, vocab_size=300, seed=1)
    for _ in range(2):  # The second replaces the first.
        sft.save_model(model, model.params, tmp_path / "model")
    from agentic_jax.sources import from_directory

    again = from_directory(
        path=str(tmp_path / "model"), dtype="float32", layer_loop="unroll", remat="none"
    )
    jax.tree.map(np.testing.assert_array_equal, model.params, again.params)
    text = "Ana packs 12 eggs. \\boxed{7}<|im_end|>"
    assert again.tokenizer(text).input_ids == model.tokenizer(text).input_ids


def test_mixed_modes_keep_their_proportions():
    modes = mixed_modes(10, {"a": 0.3, "b": 0.7}, np.random.default_rng(0))
    assert sorted(modes) == ["a"] * 3 + ["b"] * 7
    with pytest.raises(ValueError, match="do not sum to 1"):
        mixed_modes(10, {"a": 0.3}, np.random.default_rng(0))
