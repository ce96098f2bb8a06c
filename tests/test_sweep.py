import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from agentic_jax import sweep
from agentic_jax.monitor.writer import read_metrics

ROOT = pathlib.Path(__file__).parent.parent
QUICKSTART = str(ROOT / "configs" / "quickstart.py")
CONFIG = """
from configs import quickstart

def get_config(variant="tiny"):
    config = quickstart.get_config("tiny")
    config.kl_coef = {"tiny": 0.0, "b": 0.5}[variant]
    config.model.seed = 3
    config.tasks.name = "of_{seed}"
    return config
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "recipe.py"
    path.write_text(CONFIG)
    return str(path)


def test_grid_values_are_literals_or_words():
    assert sweep.parse_grid("a.b=0.2,1e-3; c=x, y;d=[1, 2],[3];e=True;") == {
        "a.b": [0.2, 1e-3],
        "c": ["x", "y"],
        "d": [[1, 2], [3]],
        "e": [True],
    }
    assert sweep.parse_grid("") == {}


@pytest.mark.parametrize("grid", ["a", "a=", "=1", "a=1;a=2"])
def test_malformed_grids_are_refused(grid):
    with pytest.raises(ValueError, match="KEY=VALUE"):
        sweep.parse_grid(grid)


def test_arms_are_variants_times_grid_named_by_what_varies(config):
    arms = sweep.arms_of(
        config,
        variants=["tiny", "b"],
        grid="surrogate.eps_high=0.2,0.3;kl_coef=0.1;reward.new=1",
    )
    assert list(arms) == [
        "tiny,surrogate.eps_high=0.2",
        "tiny,surrogate.eps_high=0.3",
        "b,surrogate.eps_high=0.2",
        "b,surrogate.eps_high=0.3",
    ]
    arm = arms["b,surrogate.eps_high=0.3"]
    assert (arm.surrogate.eps_high, arm.kl_coef, arm.reward.new) == (0.3, 0.1, 1)
    assert list(sweep.arms_of(config, variants=[], grid="")) == ["base"]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"grid": "no.such=1"}, "no section 'no'"),
        ({"grid": "kl_coef=1,1"}, "two arms"),
        ({"variants": ["b"], "suffix": ":tiny"}, "--variants"),
    ],
)
def test_wrong_arms_are_refused(config, options, message):
    options = {"variants": [], "grid": "", "suffix": "", **options}
    with pytest.raises(ValueError, match=message):
        sweep.arms_of(config + options.pop("suffix"), **options)


def test_the_seed_goes_under_its_keys_and_into_texts(config):
    arm = sweep.arms_of(config, variants=[], grid="")["base"]
    seeded = sweep.seeded(arm, 4, keys=["seed", "model.seed"])
    assert (seeded["seed"], seeded["model"]["seed"]) == (4, 4)
    assert seeded["tasks"]["name"] == "of_4"
    assert arm.seed == 0  # The arm itself stays.


def _finished(run, recipe, rows):
    (run / "model").mkdir(parents=True)
    (run / "config.json").write_text(json.dumps(recipe.config))
    lines = [json.dumps({"step": i, **row}) + "\n" for i, row in enumerate(rows)]
    (run / "metrics.jsonl").write_text("".join(lines))


def test_a_run_is_finished_once_its_model_is_there_and_only_with_its_config(tmp_path):
    arms = sweep.arms_of(f"{QUICKSTART}:tiny", variants=[], grid="num_steps=2,3")
    recipe, other = (
        sweep.build(sweep.seeded(a, 0, keys=["seed"])) for a in arms.values()
    )
    assert not sweep.is_finished(tmp_path / "run", recipe)
    _finished(tmp_path / "run", recipe, [])
    assert sweep.is_finished(tmp_path / "run", recipe)
    with pytest.raises(ValueError, match=r"num_steps: 2 -> 3"):
        sweep.is_finished(tmp_path / "run", other)


def test_the_summary_counts_finished_runs_alone(tmp_path):
    arms = sweep.arms_of(f"{QUICKSTART}:tiny", variants=[], grid="")
    recipe = sweep.build(sweep.seeded(arms["base"], 0, keys=["seed"]))
    for seed, last in ((0, 1.0), (1, 3.0)):
        run = tmp_path / "a" / f"seed_{seed}"
        _finished(run, recipe, [{"x": 9.0}, {"x": last}])
        _finished(tmp_path / "b" / f"seed_{seed}", recipe, [{"x": last + 0.5}])
    (tmp_path / "b" / "seed_1" / "model").rmdir()  # Under way.
    summary = sweep.write_summary(tmp_path, ["a", "b"], seeds=range(2), last=1)
    assert summary["a"]["x"]["mean"] == 2.0
    assert summary["b"]["x"]["change"][0] == 0.5
    saved = json.loads((tmp_path / "summary.json").read_text())
    assert saved["a"]["x"]["seeds"] == {"0": 1.0, "1": 3.0}
    header, first, *_ = (tmp_path / "summary.csv").read_text().splitlines()
    assert header.startswith("arm,metric,mean,low,high,change")
    assert first.startswith("a,x,2.0,") and first.endswith(",2")
    assert "n=2" in sweep.table(summary, metrics=["x"])


def _sweep(out):
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "launch.sweep", f"--config={QUICKSTART}:tiny"),
            *("--seeds=1", "--grid=num_steps=4,5", f"--out={out}"),
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
            "XLA_FLAGS": "",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _rows(out, arm):
    rows = read_metrics(out / arm / "seed_0" / "metrics.jsonl")
    return [{k: v for k, v in r.items() if not k.startswith("time/")} for r in rows]


@pytest.mark.slow
def test_a_killed_sweep_goes_on_to_the_same_numbers(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    text, errors = _sweep(whole).communicate(timeout=300)
    assert "n=1" in text, errors
    killed, second = _sweep(cut), cut / "num_steps=5" / "seed_0" / "metrics.jsonl"
    while not (second.exists() and second.read_text().count("\n") >= 2):
        assert killed.poll() is None
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    first = (cut / "num_steps=4" / "seed_0" / "config.json").stat().st_mtime_ns
    resumed = _sweep(cut)
    _, errors = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, errors
    assert (cut / "num_steps=4" / "seed_0" / "config.json").stat().st_mtime_ns == first
    assert "resuming" in errors
    for arm in ("num_steps=4", "num_steps=5"):
        assert _rows(cut, arm) == _rows(whole, arm)
