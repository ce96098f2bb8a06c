import subprocess
import sys

from tests.rollout.processes import ROOT


def run(*flags):
    command = [sys.executable, "-m", "launch.serve_engine", *flags]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300
    )


def test_a_missing_model_is_one_line_and_no_traceback():
    done = run("--model=/nowhere", "--port=0")
    assert done.returncode == 1 and "no model directory /nowhere" in done.stderr
    assert "Traceback" not in done.stderr
