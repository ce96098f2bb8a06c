r"""Resample-on-correct against plain GRPO where three calls in ten fail by chance.

GRPO-RoC (arXiv:2508.20722, section 3.3) plays twice the group and keeps half of it;
"half_at_random" plays as many and keeps a random half, so that what the choice does can
be told from what the number of rollouts does.

    python -m launch.sweep --config=configs/studies/resampling.py --seeds=5 \
        --seed_keys=seed,tools.python.seed \
        --variants=grpo,half_at_random,roc --out=runs/studies/resampling
"""

from collections.abc import Sequence

import numpy as np
from ml_collections.config_dict import ConfigDict

from agentic_jax.rollout.select import drop_uniform
from agentic_jax.trajectory import Sample
from configs.studies import base

_ROC = {"name": "resample_on_correct", "keep": 8, "mode": "code"}
_ARMS = {
    "grpo": {"group_size": 8},
    "half_at_random": {
        "group_size": 16,
        "select": {"name": "configs.studies.resampling:keep_at_random", "keep": 8},
    },
    "roc": {"group_size": 16, "select": _ROC},
}


def get_config(variant: str = "roc") -> ConfigDict:
    """One arm, or "tiny"."""
    config = base.arm(variant, _ARMS)
    config.tools.python = {
        "name": "configs.studies.tools:noisy_calculator",
        "failure_rate": 0.3,
        "seed": 0,
    }
    if variant == "tiny":
        config.group_size, config.select.keep = 4, 2
    return config


def keep_at_random(
    group: Sequence[Sample], *, rng: np.random.Generator, keep: int
) -> list[Sample]:
    """`keep` valid samples of a group whose scores differ; none of another."""
    valid = [sample for sample in drop_uniform(group, rng=rng) if sample.valid]
    chosen = rng.permutation(len(valid))[:keep]
    return [valid[i] for i in sorted(chosen)]
