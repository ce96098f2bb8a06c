r"""TEPO sparse and dense against GRPO, with a tool that helps and one that does not.

TEPO (arXiv:2602.02050) rewards calls after which the policy's entropy falls. The
useful tool is needed for products of two-digit numbers; with the useless one, which
always says "No output.", the problems are products of one-digit numbers, which the
start may know by heart, and every call is wasted.

    for tool in useful useless; do python -m launch.sweep --seeds=5 \
        --config=configs/studies/entropy_credit.py \
        --variants=grpo_$tool,sparse_$tool,dense_$tool \
        --out=runs/studies/entropy_credit_$tool; done
"""

from ml_collections.config_dict import ConfigDict

from configs.studies import base

_SPARSE = {"name": "tepo_sparse", "eps": 1e-6, "markup": "in"}
_DENSE = {
    "name": "tepo_dense",
    "alpha": 0.5,
    "final": "final_traj",
    "eps": 1e-6,
    "markup": "in",
}
_CREDITS = {"grpo": {}, "sparse": {"credit": _SPARSE}, "dense": {"credit": _DENSE}}
_REWARD = {"reward": {"name": "outcome"}}
_USELESS = {
    "tools": {"python": {"name": "configs.studies.tools:useless_calculator"}},
    "tasks": {
        "name": "word_problems",
        "split": "train",
        "count": 2_000,
        "seed": 0,
        "digits": [1, 1],
    },
    "eval_tasks": {  # The same products: nobody can know those of the other split.
        "name": "word_problems",
        "split": "train",
        "count": 128,
        "seed": 1,
        "digits": [1, 1],
    },
}
_TOOLS = {"useful": {}, "useless": _USELESS}
_ARMS = {
    f"{credit}_{tool}": {**_REWARD, **_CREDITS[credit], **_TOOLS[tool]}
    for tool in _TOOLS
    for credit in _CREDITS
}


def get_config(variant: str = "dense_useful") -> ConfigDict:
    """One arm, or "tiny"."""
    config = base.arm(variant, _ARMS)
    config.log.groups_per_step = config.prompts_per_step  # Entropies of all calls.
    return config
