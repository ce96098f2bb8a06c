import importlib
import pathlib

import pytest

from agentic_jax.monitor.writer import read_metrics
from agentic_jax.recipe import build_rl, build_sft
from agentic_jax.training import rl
from configs import demystify_grpo_scr, demystify_grpo_t, demystify_grpo_tcr

CONFIGS = pathlib.Path(__file__).parent.parent / "configs"
NAMES = sorted(
    p.stem for p in CONFIGS.glob("*.py") if p.stem not in ("__init__", "toy")
)


@pytest.mark.parametrize("name", NAMES)
def test_every_config_builds_at_full_and_at_tiny_size(name):
    module = importlib.import_module(f"configs.{name}")
    build = build_sft if name.endswith("_sft") else build_rl
    for config in (module.get_config(), module.get_config("tiny")):
        build(config)


@pytest.mark.parametrize(
    "module, eps, kl, aggregation",
    [
        (demystify_grpo_t, (0.2, 0.2), 0.001, "token_mean"),
        (demystify_grpo_tcr, (0.2, 0.28), 0.0, "token_mean"),
        (demystify_grpo_scr, (3e-4, 4e-4), 0.0, "sequence_mean"),
    ],
)
def test_the_paper_recipes_have_the_papers_numbers(module, eps, kl, aggregation):
    config = module.get_config()
    assert (config.surrogate.eps_low, config.surrogate.eps_high) == eps
    assert (config.kl_coef, config.aggregation.name) == (kl, aggregation)
    assert (config.prompts_per_step, config.group_size) == (64, 16)
    assert config.rollout.max_response_tokens == 16_384
    assert ("max_tokens" in config.reward) == (module is not demystify_grpo_t)


@pytest.mark.parametrize("module", [demystify_grpo_t, demystify_grpo_scr])
def test_the_tiny_recipes_run_a_step(module, tmp_path):
    config = module.get_config("tiny")
    config.num_steps = 1
    config.reward = {"name": "tests.fakes:parity_reward"}
    rl.train(build_rl(config), workdir=tmp_path)
    (row,) = read_metrics(tmp_path / "metrics.jsonl")
    assert row["policy/grad_norm"] > 0
