import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent.parent


def run(module, *flags):
    environment = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
        "XLA_FLAGS": "",
    }
    return subprocess.run(
        [sys.executable, "-m", module, *flags],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )


def test_the_quickstart_runs_at_tiny_size_and_again(tmp_path):
    for _ in range(2):  # The second time finds all its phases done.
        done = run("launch.quickstart", "--size=tiny", f"--workdir={tmp_path}")
        assert done.returncode == 0, done.stderr
    assert str(tmp_path / "rl" / "metrics.jsonl") in done.stdout
    numbers = json.loads((tmp_path / "summary.json").read_text())
    assert {"problems", "seconds", "cpu_seconds", "seed", "peak_rss_mb"} <= set(numbers)
    assert {"avg@2", "ci95", "pass@2", "maj@2", "tool_success"} <= set(numbers["after"])
    evaluated = run(
        "launch.evaluate",
        "--config=configs/quickstart.py:tiny",
        "--modes=tools,self_contained",
        f"--out={tmp_path / 'eval.json'}",
    )
    assert evaluated.returncode == 0, evaluated.stderr
    modes = json.loads((tmp_path / "eval.json").read_text())
    assert set(modes) == {"tools", "self_contained"}
    assert modes["self_contained"]["rollout/turns_mean"] == 1.0


def test_a_users_mistake_is_one_line_and_no_traceback(tmp_path):
    done = run(
        "launch.train_rl",
        "--config=configs/quickstart.py",
        f"--workdir={tmp_path}",
        "--config.model.path=/nowhere",
    )
    assert done.returncode == 1
    assert "no model directory /nowhere" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_describes_the_config_flag():
    done = run("launch.train_rl", "--help")
    assert "--config: Recipe" in done.stdout
    assert "--workdir" in done.stdout
