import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
from absl import logging

from agentic_jax.models import hf_weights
from agentic_jax.monitor.trace import read_trace, trace_path
from agentic_jax.monitor.writer import read_metrics
from agentic_jax.recipe import build_rl
from agentic_jax.training import rl
from configs import quickstart
from tests.fakes import parity_reward

ROOT = pathlib.Path(__file__).parent.parent.parent
STEPS = 8
killed, restarted = threading.Event(), threading.Event()


def patient_reward(score, trajectory):
    """Holds the run up after the kill, until the server is there again."""
    if killed.is_set():
        assert restarted.wait(240)
    return parity_reward(score, trajectory)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(model, port):
    environment = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "",
    }
    command = [sys.executable, "-m", "launch.serve_engine", f"--model={model}"]
    command += [f"--port={port}", "--rows=8", "--length=80", "--deterministic"]
    return subprocess.Popen(command, cwd=ROOT, env=environment)


def ask(port, route):
    with contextlib.suppress(urllib.error.URLError, OSError):
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}{route}", timeout=10
        ) as answer:
            return json.loads(answer.read() or "{}")
    return None


def until(condition, seconds=240):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_up(port):
    return ask(port, "/v1/loads") is not None


def num_running(port):
    return ask(port, "/v1/loads")["loads"][0]["num_running_reqs"]


def fleet_config(ports, directory):
    config = quickstart.get_config("tiny")
    config.num_steps = STEPS
    config.reward = {"name": f"{__name__}:patient_reward"}
    config.engine = {
        "name": "agentic_jax.rollout.remote:open_fleet",
        "urls": [f"http://127.0.0.1:{port}" for port in ports],
        "directory": str(directory),
        "dtype": "float32",
        "length": 80,
        "timeout_s": 60.0,
        "slice_tokens": 8,
        "wait_s": 120.0,
        "check_s": 0.1,
    }
    return config


@pytest.mark.slow
def test_a_server_killed_in_mid_step_and_restarted_costs_the_run_nothing(
    tmp_path, caplog
):
    logging.set_verbosity(logging.INFO)
    caplog.set_level("INFO", "absl")
    ports = [free_port(), free_port()]
    recipe = build_rl(fleet_config(ports, tmp_path / "weights"))
    model = recipe.model()
    hf_weights.save(model.params, model.config, tmp_path / "model")
    model.tokenizer.save_pretrained(tmp_path / "model")
    servers = [start(tmp_path / "model", port) for port in ports]

    def kill_and_restart():
        until(lambda: len(read_metrics(tmp_path / "run" / "metrics.jsonl")) >= 2)
        until(lambda: num_running(ports[0]) > 0)
        servers[0].send_signal(signal.SIGKILL)
        killed.set()
        servers[0].wait()
        servers.append(start(tmp_path / "model", ports[0]))
        until(lambda: is_up(ports[0]))
        restarted.set()

    killer = threading.Thread(target=kill_and_restart)
    try:
        until(lambda: all(is_up(port) for port in ports))
        killer.start()
        rl.train(recipe, workdir=tmp_path / "run")
        killer.join()
        label = ask(ports[0], "/model_info")["weight_version"]
    finally:
        for server in servers:
            server.kill()
            server.wait()
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(STEPS))
    for step in range(STEPS):
        trace = read_trace(trace_path(tmp_path / "run", step))
        assert len(trace) == 8, f"step {step}: two groups of four"
        versions = {turn["weight_version"] for row in trace for turn in row["turns"]}
        assert versions == {step}
    assert all(row["policy/mismatch_max"] < 1e-3 for row in rows)
    last = rows[-1]
    assert last["time/engine_faults"] >= 1 and last["time/engine_retries"] >= 1
    assert last["time/engine_servers_in_service"] == 2 and label == str(STEPS)
    url = f"http://127.0.0.1:{ports[0]}"
    for line in (
        f"server {url} is out of service, 1 of 2 are left",
        "goes on from token",
        f"server {url} cannot serve yet, asking every 0.1 s",
        f"server {url} is in service: 640 tokens of cache, weights",
    ):
        assert line in caplog.text, line
