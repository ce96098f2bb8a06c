import importlib
import pathlib
import re

import pytest

from agentic_jax.recipe import build_rl, build_sft
from configs import (
    aepo,
    arpo,
    demyagent_4b,
    demystify_eps_high,
    demystify_grpo_scr,
    demystify_grpo_t,
    demystify_grpo_tcr,
    demystify_long_cot,
    demystify_sft,
    eval_math,
    eval_search,
    rstar2,
    search,
    tepo_dense,
    tepo_grpo,
    tepo_sparse,
)

ROOT = pathlib.Path(__file__).parent.parent
NAMES = sorted(
    p.stem for p in (ROOT / "configs").glob("*.py") if p.stem not in ("__init__", "toy")
)
VARIANTS = {
    **dict.fromkeys(
        (demystify_grpo_t, demystify_grpo_tcr, demystify_grpo_scr),
        demystify_grpo_tcr.VARIANTS,
    ),
    demystify_eps_high: demystify_eps_high.EPS_HIGH,
    demystify_long_cot: demystify_long_cot.PATHS,
    demystify_sft: demystify_sft.MODELS,
    **dict.fromkeys((tepo_grpo, tepo_sparse, tepo_dense, aepo), tepo_grpo.VARIANTS),
    arpo: arpo.VARIANTS,
    rstar2: rstar2.VARIANTS,
    eval_math: ("paper", "rstar2", "tiny"),
    eval_search: eval_search.VARIANTS,
}


def build(config):
    return build_sft(config) if "trajectories" in config else build_rl(config)


@pytest.mark.parametrize("name", NAMES)
def test_every_config_builds_at_full_and_at_tiny_size(name):
    module = importlib.import_module(f"configs.{name}")
    for config in (module.get_config(), module.get_config("tiny")):
        build(config)
    with pytest.raises(ValueError, match="'huge' does not exist; known: .*tiny"):
        module.get_config("huge")


@pytest.mark.parametrize(
    "module, variant",
    [(module, variant) for module, names in VARIANTS.items() for variant in names],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_every_variant_builds(module, variant):
    build(module.get_config(variant))


@pytest.mark.parametrize("name", NAMES)
def test_every_config_is_in_the_table_of_recipes(name):
    table = (ROOT / "docs" / "recipes.md").read_text("utf-8")
    assert re.search(rf"^\| `{name}` ", table, re.MULTILINE)


@pytest.mark.parametrize(
    "module, eps, kl, aggregation",
    [
        (demystify_grpo_t, (0.2, 0.2), 0.001, "token_mean"),
        (demystify_grpo_tcr, (0.2, 0.28), 0.0, "token_mean"),
        (demystify_grpo_scr, (3e-4, 4e-4), 0.0, "sequence_mean"),
        (demyagent_4b, (0.2, 0.315), 0.0, "token_mean"),
    ],
)
def test_the_first_papers_recipes_have_its_numbers(module, eps, kl, aggregation):
    config = module.get_config()
    assert (config.surrogate.eps_low, config.surrogate.eps_high) == eps
    assert (config.kl_coef, config.aggregation.name) == (kl, aggregation)
    assert (config.prompts_per_step, config.group_size) == (64, 16)
    assert config.rollout.max_response_tokens == 16_384
    assert ("max_tokens" in config.reward) == (module is not demystify_grpo_t)


def test_supervised_training_sees_each_of_3000_trajectories_five_times():
    config = demystify_sft.get_config()
    assert config.num_steps * config.trajectories_per_step // 3_000 == 5
    assert config.batch.row_length == 32_768


@pytest.mark.parametrize("module", [tepo_grpo, tepo_sparse, tepo_dense])
@pytest.mark.parametrize(
    "size, problems, epochs", [("paper", 1e4, 2), ("search", 1e3, 5)]
)
def test_tepo_has_its_batch_context_and_epochs(module, size, problems, epochs):
    config = module.get_config(size)
    assert (config.prompts_per_step, config.group_size) == (128, 8)
    assert config.prompts_per_step / config.batch.updates_per_step == 16
    assert config.batch.row_length == 20_480
    trained = config.num_steps * config.prompts_per_step / problems
    assert trained == pytest.approx(epochs, rel=0.02)
    evaluated = config.eval
    assert (evaluated.temperature, evaluated.top_p, evaluated.top_k) == (0.2, 0.95, 20)


@pytest.mark.parametrize("module", [arpo, aepo])
def test_branching_baselines_have_a_budget_of_16(module):
    config = module.get_config()
    assert config.group_size == 16
    assert config.explore.name == module.__name__.rpartition(".")[2]
    assert arpo.get_config().explore.roots == 8


def test_questions_of_the_search_recipe_are_trained_on_or_held_out():
    config = search.get_config()
    folds = [x.filters.fold for x in (config.tasks, config.eval_tasks)]
    assert not set(folds[0].kept) & set(folds[1].kept)
    assert {fold.folds for fold in folds} == {4}
