"""Whole runs that go on on other devices than they began on."""

import os
import pathlib
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

from agentic_jax.models import hf_weights
from agentic_jax.monitor.writer import read_metrics
from agentic_jax.recipe import build_rl
from agentic_jax.training import rl
from tests.training import config_parity

ROOT = pathlib.Path(__file__).parent.parent.parent


def run(workdir, num_steps, **axes):
    """Parameters by path after so many steps, on a mesh of these axes."""
    config = config_parity.get_config("wide")
    config.num_steps = num_steps
    config.mesh.update(axes)
    model, params = rl.train(build_rl(config), workdir=workdir)
    return hf_weights.by_path(jax.device_get(params))


def assert_same_run(workdir, straight):
    """Metrics of the same samples, in the same order, but for rounding."""
    rows, others = (read_metrics(w / "metrics.jsonl") for w in (workdir, straight))
    for row, other in zip(rows, others, strict=True):
        for name, value in other.items():
            if not name.startswith("time/"):
                assert row[name] == pytest.approx(value, rel=1e-3, abs=1e-5), name


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("straight")
    return workdir, run(workdir, 2, fsdp=4)


@pytest.mark.slow
def test_a_run_goes_on_on_another_mesh(straight, tmp_path):
    run(tmp_path, 1, fsdp=4)
    params = run(tmp_path, 2, fsdp=2, tensor=2)
    for path, leaf in straight[1].items():
        np.testing.assert_allclose(params[path], leaf, rtol=1e-4, atol=1e-6)
    assert_same_run(tmp_path, straight[0])


def launch(workdir, num_steps, num_processes):
    """A whole run of launch.train_rl in several processes, of four devices in all."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{probe.getsockname()[1]}"
    devices = 4 // num_processes
    environment = {
        **os.environ,
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
    }
    command = [sys.executable, "-m", "launch.train_rl", f"--workdir={workdir}"]
    command += ["--config=tests/training/config_parity.py:wide"]
    command += [f"--config.num_steps={num_steps}", "--config.mesh.fsdp=4"]
    command += [f"--coordinator={coordinator}", f"--num_processes={num_processes}"]
    started = [
        subprocess.Popen([*command, f"--process_id={i}"], cwd=ROOT, env=environment)
        for i in range(num_processes)
    ]
    try:
        assert [process.wait(300) for process in started] == [0] * num_processes
    finally:
        for process in started:
            process.kill()


@pytest.mark.slow
def test_a_run_goes_on_in_another_number_of_processes(straight, tmp_path):
    launch(tmp_path, 1, num_processes=2)
    launch(tmp_path, 2, num_processes=4)
    loaded = hf_weights.load(
        tmp_path / "model", hf_weights.read_config(tmp_path / "model")
    )
    params = hf_weights.by_path(jax.device_get(loaded))
    for path, leaf in straight[1].items():
        np.testing.assert_allclose(params[path], leaf, rtol=1e-4, atol=1e-6)
    assert_same_run(tmp_path, straight[0])
