import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from agentic_jax.monitor.trace import read_trace, trace_path
from agentic_jax.monitor.writer import read_metrics
from agentic_jax.recipe import build_rl
from agentic_jax.training import rl
from configs import quickstart

ROOT = pathlib.Path(__file__).parent.parent.parent


def tiny(**changes):
    config = quickstart.get_config("tiny")
    config.reward = {"name": "tests.fakes:parity_reward"}
    for key, value in changes.items():
        config[key] = value
    return config


def without_time(workdir):
    return [
        {k: v for k, v in row.items() if not k.startswith("time/")}
        for row in read_metrics(workdir / "metrics.jsonl")
    ]


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("straight")
    _, params = rl.train(build_rl(tiny(num_steps=4)), workdir=workdir)
    return workdir, jax.device_get(params)


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("resumed")
    rl.train(build_rl(tiny(num_steps=2)), workdir=workdir)
    _, params = rl.train(build_rl(tiny(num_steps=4)), workdir=workdir)
    return workdir, jax.device_get(params)


def test_training_changes_every_parameter(straight):
    before = build_rl(tiny()).model().params
    same = jax.tree.map(lambda a, b: np.array_equal(a, b), before, straight[1])
    assert not any(jax.tree.leaves(same))


def test_two_steps_and_two_after_a_restart_equal_four_bit_for_bit(straight, resumed):
    jax.tree.map(np.testing.assert_array_equal, straight[1], resumed[1])
    assert without_time(straight[0]) == without_time(resumed[0])
    assert [row["step"] for row in without_time(resumed[0])] == [0, 1, 2, 3]
    for step in range(4):
        rows = [read_trace(trace_path(w, step)) for w, _ in (straight, resumed)]
        for row in (row for both in rows for row in both):
            for turn in row["turns"]:
                turn.pop("calls")  # These hold seconds.
        assert rows[0] == rows[1]


def test_a_finished_run_only_says_so(resumed):
    before = (resumed[0] / "metrics.jsonl").read_text()
    rl.train(build_rl(tiny(num_steps=4)), workdir=resumed[0])
    assert (resumed[0] / "metrics.jsonl").read_text() == before


def test_any_other_changed_key_is_listed_and_refused(resumed):
    config = tiny(num_steps=6)
    config.rollout.temperature = 0.5
    config.surrogate.eps_high = 0.3
    with pytest.raises(ValueError) as caught:
        rl.train(build_rl(config), workdir=resumed[0])
    assert "rollout.temperature: 1.0 -> 0.5" in str(caught.value)
    assert "surrogate.eps_high: 0.28 -> 0.3" in str(caught.value)
    assert "num_steps:" not in str(caught.value)


def test_the_workdir_holds_what_a_reader_needs(straight):
    workdir = straight[0]
    config = json.loads((workdir / "config.json").read_text())
    assert config == build_rl(tiny(num_steps=4)).config
    row = read_trace(trace_path(workdir, 1))[0]
    assert row["text"].startswith("<|im_start|>user")
    assert len(row["tokens"]["ids"]) == len(row["tokens"]["trainer_logprobs"])
    versions = {
        turn["weight_version"]
        for row in read_trace(trace_path(workdir, 3))
        for turn in row["turns"]
    }
    assert versions == {3}
    names = read_metrics(workdir / "metrics.jsonl")[1].keys()
    assert {"policy/mismatch_max", "tool/success_fraction", "time/step_s"} <= names
    phases = ("rollout", "tools", "score", "update", "publish", "log", "save")
    assert {f"time/{phase}_s" for phase in phases} <= names
    assert {"time/mfu_fraction", "time/update_tokens_per_s"} <= names


def test_engine_and_trainer_agree_on_what_was_sampled(straight):
    for row in read_metrics(straight[0] / "metrics.jsonl"):
        assert row["policy/mismatch_max"] < 1e-4


def test_too_many_faults_stop_the_run_with_the_first_one_named(tmp_path):
    config = tiny(verifier={"name": "tests.training.test_rl:failing_verifier"})
    with pytest.raises(RuntimeError, match="8 of 8 .* the first: no grader"):
        rl.train(build_rl(config), workdir=tmp_path)


async def failing_verifier(trajectory, services):
    from agentic_jax.rewards.grading import GradingCrash

    raise GradingCrash("no grader")


def infinite_surrogate(log_ratio, advantages):
    return log_ratio * np.inf


def test_a_loss_that_is_not_finite_stops_before_it_is_applied(tmp_path):
    config = tiny(surrogate={"name": "tests.training.test_rl:infinite_surrogate"})
    with pytest.raises(
        FloatingPointError, match="policy/loss.*resumes from the newest"
    ):
        rl.train(build_rl(config), workdir=tmp_path)


def launch(workdir, num_steps):
    command = [sys.executable, "-m", "launch.train_rl"]
    command += ["--config=tests/training/config_parity.py", f"--workdir={workdir}"]
    command += [f"--config.num_steps={num_steps}"]
    environment = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
        "XLA_FLAGS": "",
    }
    return subprocess.Popen(command, cwd=ROOT, env=environment)


def test_a_run_killed_in_mid_step_resumes_to_the_same_metrics(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = launch(killed, 40)
    deadline = time.monotonic() + 300
    while len(read_metrics(killed / "metrics.jsonl")) < 3:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    reached = len(read_metrics(killed / "metrics.jsonl"))
    processes = [launch(w, reached + 2) for w in (killed, whole)]
    assert [p.wait(timeout=300) for p in processes] == [0, 0]
    rows = without_time(whole)
    assert rows == without_time(killed)
    assert [row["step"] for row in rows] == list(range(reached + 2))
