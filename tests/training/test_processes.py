import json
import os
import pathlib
import socket
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from agentic_jax.training import processes
from tests.training import process_worker

ROOT = pathlib.Path(__file__).parent.parent.parent


def run(num_processes, workdir, what):
    """Exit codes and outputs of the worker in several processes, and the seconds."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{probe.getsockname()[1]}"
    devices = 4 // num_processes
    environment = {
        **os.environ,
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices} "
        "--xla_backend_optimization_level=0",  # Compiles in half the time.
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
    }
    start = time.monotonic()
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.training.process_worker", coordinator]
            + [str(num_processes), str(i), str(workdir), what],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for i in range(num_processes)
    ]
    try:
        outputs = [process.communicate(timeout=300)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    return [p.returncode for p in started], outputs, time.monotonic() - start


def result(workdir):
    report = json.loads((workdir / "metrics.json").read_text())
    with np.load(workdir / "params.npz") as params:
        return [params[name] for name in params.files], report["metrics"]


def assert_same(a, b):
    for x, y in zip(result(a)[0], result(b)[0], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
    for name, value in result(a)[1].items():
        assert result(b)[1][name] == pytest.approx(value, rel=1e-4, abs=1e-6), name


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Three steps in this process, on four of its devices."""
    workdir = tmp_path_factory.mktemp("alone")
    process_worker.train(workdir, 3, {"fsdp": 4})
    return workdir


def assert_resumes_alone(workdir, alone):
    """The third step, in one process on another mesh, ends where `alone` ended."""
    process_worker.train(workdir, 3, {"data": 2, "fsdp": 2})
    assert_same(alone, workdir)


def test_two_processes_train_to_what_one_does_and_one_resumes_them(alone, tmp_path):
    codes, outputs, _ = run(2, tmp_path, "train2")
    assert codes == [0, 0], outputs
    report = json.loads((tmp_path / "metrics.json").read_text())
    assert report["collected"] == [0]  # Of three groups: the other process has two.
    assert report["received"] == [0, 1, 2]
    assert_resumes_alone(tmp_path, alone)


@pytest.mark.slow
def test_four_processes_train_to_what_one_does(alone, tmp_path):
    codes, outputs, _ = run(4, tmp_path, "train3")
    assert codes == [0] * 4, outputs
    assert_same(alone, tmp_path)


@pytest.mark.slow
def test_two_processes_go_on_with_what_four_left(alone, tmp_path):
    assert run(4, tmp_path, "train1")[0] == [0] * 4
    assert run(2, tmp_path, "train3")[0] == [0] * 2
    assert_same(alone, tmp_path)


def test_a_process_that_raises_stops_the_other_which_says_so(tmp_path):
    codes, outputs, seconds = run(2, tmp_path, "raise")
    assert codes[1] == 1 and codes[0] != 0
    assert (
        "process 1 stops, and with it the others: ValueError: the tools" in outputs[1]
    )
    assert "process 0 stops" in outputs[0] or "another task died" in outputs[0]
    assert seconds < 60


@pytest.mark.slow
def test_a_killed_process_stops_the_others_in_bounded_time(tmp_path):
    codes, outputs, seconds = run(4, tmp_path, "die")
    assert codes[3] == -9 and 0 not in codes
    for output in outputs[:3]:
        assert "stops, and with it" in output or "another task died" in output
    assert seconds < 60 + process_worker.HEARTBEAT


@pytest.mark.slow
def test_a_slow_process_is_waited_for(tmp_path):
    codes, outputs, _ = run(2, tmp_path, "wait")
    assert codes == [0, 0], outputs
    assert all("[0, 1]" in output for output in outputs)


@pytest.mark.parametrize("count, processes_", [(7, 3), (2, 4), (0, 2)])
def test_shares_are_all_the_work_in_order(count, processes_, monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: processes_)
    shares = []
    for index in range(processes_):
        monkeypatch.setattr(jax, "process_index", lambda index=index: index)
        shares.append(list(processes.my_share(count)))
    assert sum(shares, []) == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_single_process_is_a_run_by_itself():
    with processes.joined(coordinator="", num_processes=1, process_id=0):
        assert processes.is_writer() and list(processes.my_share(3)) == [0, 1, 2]
        assert processes.exchange(["a"]) == ["a"]


def test_a_process_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="process_id is 2 of num_processes 2"):
        with processes.joined(coordinator="x:1", num_processes=2, process_id=2):
            pass
