"""Every config at its tiny size: a step, and an evaluation."""

import importlib

import pytest

from agentic_jax.curation import write_teacher_trajectories
from agentic_jax.evaluation.suite import evaluate_suite
from agentic_jax.monitor.writer import read_metrics
from agentic_jax.recipe import build_rl, build_sft
from agentic_jax.training import rl, sft
from tests.test_configs import NAMES

# Programs that another config of this list compiles too run in `make test`.
SHOWN = ("demystify_grpo_t", "demystify_grpo_scr", "tepo_dense", "aepo", "search")
EVALUATIONS = [name for name in NAMES if name.startswith("eval_")]
SFT = [name for name in NAMES if name.endswith("_sft")]
TRAINING = [name for name in NAMES if name not in {*EVALUATIONS, *SFT}]


def tiny(name):
    config = importlib.import_module(f"configs.{name}").get_config("tiny")
    config.num_steps = 1
    config.eval.update(every=1, problems=2, samples=2)
    return config


@pytest.mark.parametrize(
    "name",
    [n if n in SHOWN else pytest.param(n, marks=pytest.mark.slow) for n in TRAINING],
)
def test_a_tiny_config_trains_a_step_and_is_evaluated(name, tmp_path):
    config = tiny(name)
    config.verifier = {"name": "tests.fakes:parity_score"}
    rl.train(build_rl(config), workdir=tmp_path)
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert rows[0]["policy/grad_norm"] > 0
    assert any("eval/avg@2" in row for row in rows)
    if name == "search":
        assert rows[0]["tool/supporting_recall"] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", SFT)
def test_a_tiny_supervised_config_trains_a_step_and_is_evaluated(name, tmp_path):
    config = tiny(name)
    config.trajectories = str(tmp_path / "teacher.jsonl")
    recipe = build_sft(config)
    write_teacher_trajectories(
        recipe, tmp_path / "teacher.jsonl", count=8, digits=[2, 2], fractions=[1, 0, 0]
    )
    sft.train(recipe, workdir=tmp_path)
    (row,) = read_metrics(tmp_path / "metrics.jsonl")
    assert row["sft/loss"] > 0
    assert "eval/avg@2" in row


@pytest.mark.parametrize("name", EVALUATIONS)
def test_a_tiny_evaluation_reports_every_benchmark(name):
    recipe = build_rl(importlib.import_module(f"configs.{name}").get_config("tiny"))
    reports = evaluate_suite(recipe, recipe.model(), modes=["tools"], journals=None)
    assert len(reports) == len(recipe.benchmarks)
    for benchmark in recipe.benchmarks:
        report = reports[f"{benchmark.name}/tools"]
        assert report.problems == benchmark.sampling["problems"]
        assert 0.0 <= report.average <= 1.0
