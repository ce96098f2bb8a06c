import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from agentic_jax.curation.sft import curate_sft
from agentic_jax.recipe import build_rl
from agentic_jax.training.sft import read_trajectories
from configs import quickstart
from configs.curation import default

ROOT = pathlib.Path(__file__).parent.parent.parent
PROBLEMS = 600
FRACTIONS = {"tool": 0.5, "direct": 0.2, "recovery": 0.3}
OPTIONS = f"""
from configs.curation import default

def get_config():
    config = default.get_config()
    config.sft.player = {{"name": "word_problems", "fractions": {FRACTIONS}}}
    config.sft.samples = 1
    return config
"""


def lines_of(path):
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


@pytest.mark.slow
def test_a_killed_curation_goes_on_without_repeating_a_rollout(tmp_path):
    (tmp_path / "options.py").write_text(OPTIONS)
    command = [
        *(sys.executable, "-m", "launch.curate", "sft"),
        "--config=configs/quickstart.py:tiny",
        f"--config.tasks.count={PROBLEMS}",
        "--config.rollout.concurrency=4",
        f"--curation={tmp_path / 'options.py'}",
        f"--out={tmp_path / 'out'}",
    ]
    journal = tmp_path / "out" / "rollouts.jsonl"
    before: list[bytes] = []
    for _ in range(2):
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "XLA_FLAGS": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        while len(lines_of(journal)) < len(before) + 40 and process.poll() is None:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        after = lines_of(journal)
        assert len(before) < len(after) < PROBLEMS, output.decode()
        assert after[: len(before)] == before
        before = after
    assert not (tmp_path / "out" / "trajectories.jsonl").exists()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    whole = lines_of(journal)
    assert whole[: len(before)] == before
    keys = [json.loads(line)[0] for line in whole[1:]]
    assert sorted(keys) == [[p, 0] for p in range(PROBLEMS)]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["played"] == PROBLEMS

    config = quickstart.get_config("tiny")
    config.tasks.count = PROBLEMS
    options = default.get_config().sft.to_dict()
    options |= {"samples": 1, "player": {"name": "word_problems"}}
    options["player"]["fractions"] = FRACTIONS
    straight = curate_sft(build_rl(config), tmp_path / "straight", options)
    assert straight == summary
    for one, two in zip(
        *(
            read_trajectories(tmp_path / name / "trajectories.jsonl")
            for name in ("out", "straight")
        ),
        strict=True,
    ):
        assert one.task.id == two.task.id
        np.testing.assert_array_equal(one.token_ids, two.token_ids)
