import subprocess
import sys

from tests.rollout.processes import ROOT


def run(*flags):
    command = [sys.executable, "-m", "launch.serve_engine", *flags]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300
    )


def test_help_describes_the_flags_and_a_missing_model_is_one_line():
    shown = run("--help").stdout
    for flag in ("model", "port", "rows", "length", "dtype", "host", "deterministic"):
        assert f"--{flag}" in shown or f"--[no]{flag}" in shown
    done = run("--model=/nowhere", "--port=0")
    assert done.returncode == 1 and "no model directory /nowhere" in done.stderr
    assert "Traceback" not in done.stderr
