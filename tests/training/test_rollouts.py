import os
import pathlib
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

from agentic_jax.monitor.trace import read_trace, trace_path
from agentic_jax.monitor.writer import read_metrics
from agentic_jax.recipe import build_rl
from agentic_jax.training import rl
from tests.training.test_rl import tiny, without_time

ROOT = pathlib.Path(__file__).parent.parent.parent


def some_tasks_only(group, *, rng):
    """Drops about half of the groups, whole."""
    ids = group[0].trajectory.prompt_token_ids
    return list(group) if int(ids.sum()) % 2 else []


def refilled(workdir, num_steps, rounds=6):
    select = {"name": "tests.training.test_rollouts:some_tasks_only"}
    draw = {
        "name": "by_difficulty",
        **{"half_life": 1.0, "prior": 1.0, "too_hard": 0.2, "too_easy": 0.8},
    }
    config = tiny(num_steps=num_steps, select=select, refill_rounds=rounds, draw=draw)
    config.tasks.count, config.seed = 20, 1
    rl.train(build_rl(config), workdir=workdir)
    return config, without_time(workdir)


def test_dropped_groups_are_refilled_and_a_restart_draws_the_same(tmp_path):
    config, rows = refilled(tmp_path / "straight", 2)
    size = config.group_size
    for row in rows:
        assert row["select/groups"] == config.prompts_per_step
        assert row["select/rounds"] > 1
        played = row["rollout/trajectories"]
        assert row["select/kept_fraction"] == config.prompts_per_step * size / played
    drawn = sum(row["rollout/trajectories"] for row in rows) / size
    assert rows[1]["data/tried_fraction"] == drawn / config.tasks.count
    refilled(tmp_path / "resumed", 1)
    assert refilled(tmp_path / "resumed", 2)[1] == rows


def test_without_refill_a_step_trains_on_what_is_left(tmp_path):
    config, (row,) = refilled(tmp_path, 1, rounds=0)
    assert 0 < row["select/groups"] < config.prompts_per_step
    assert row["rollout/trajectories"] == config.prompts_per_step * config.group_size


def overlapped(workdir, num_steps):
    config = tiny(num_steps=num_steps, overlap=True)
    config.correction = {"name": "tis", "cap": 2.0}
    rl.train(build_rl(config), workdir=workdir)
    return without_time(workdir)


def problems(workdir, step):
    return [row["task"]["id"] for row in read_trace(trace_path(workdir, step))]


def test_overlap_trains_on_samples_at_most_one_step_old(tmp_path):
    rows = overlapped(tmp_path / "straight", 3)
    assert [row["rollout/staleness_max"] for row in rows] == [0.0, 1.0, 1.0]
    assert all(row["policy/updates"] > 0 for row in rows)
    versions = {
        turn["weight_version"]
        for row in read_trace(trace_path(tmp_path / "straight", 2))
        for turn in row["turns"]
    }
    assert versions <= {1, 2}
    overlapped(tmp_path / "resumed", 1)
    resumed = overlapped(tmp_path / "resumed", 3)
    assert resumed[1]["rollout/staleness_max"] == 0.0  # Sampled once more.
    for step in range(3):
        assert sorted(problems(tmp_path / "resumed", step)) == sorted(
            problems(tmp_path / "straight", step)
        )


def test_overlap_without_a_correction_is_refused():
    with pytest.raises(ValueError, match="set config.correction = {'name': 'tis'"):
        build_rl(tiny(overlap=True))


def test_adapters_alone_are_trained_and_the_engine_gets_them_merged(tmp_path):
    config = tiny(num_steps=2)
    config.model.lora = {"rank": 2, "alpha": 4.0, "targets": ["q_proj", "down_proj"]}
    recipe = build_rl(config)
    _, weights = rl.train(recipe, workdir=tmp_path)
    before = jax.tree_util.tree_leaves_with_path(recipe.model().params)
    changed = {
        jax.tree_util.keystr(path, simple=True, separator="/")
        for (path, old), new in zip(before, jax.tree.leaves(weights), strict=True)
        if not np.array_equal(old, new)
    }
    assert len(changed) == 2
    assert all("attention/q" in name or "mlp/down" in name for name in changed)
    second = without_time(tmp_path)[1]  # Sampled with the first step's update merged.
    assert second["policy/mismatch_max"] < 1e-4


@pytest.mark.slow
def test_two_processes_train_to_what_one_does(tmp_path):
    _run(tmp_path / "one", [[]])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = [f"--coordinator=127.0.0.1:{port}", "--num_processes=2"]
    _run(tmp_path / "two", [[*common, f"--process_id={i}"] for i in range(2)])
    one, two = (without_time(tmp_path / name) for name in ("one", "two"))
    assert [row.keys() for row in one] == [row.keys() for row in two]
    for a, b in zip(one, two, strict=True):
        for name in a:
            np.testing.assert_allclose(a[name], b[name], rtol=1e-4, atol=1e-5)
    assert read_metrics(tmp_path / "two" / "metrics.jsonl")[0]["time/rollout_s"] > 0


def _run(workdir, flags):
    """One launch.train_rl a list of flags, with four devices in all."""
    count = 4 // len(flags)
    environment = os.environ | {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={count}",
        "JAX_PLATFORMS": "cpu",
    }
    command = [
        *(sys.executable, "-m", "launch.train_rl", f"--workdir={workdir}"),
        "--config=configs/quickstart.py:tiny",
        *("--config.num_steps=2", "--config.mesh.fsdp=4"),
    ]
    running = [
        subprocess.Popen(
            [*command, *more],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for more in flags
    ]
    for process in running:
        output, _ = process.communicate(timeout=400)
        assert process.returncode == 0, output
