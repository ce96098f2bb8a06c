r"""TEPO dense: a reward for each call, more where the entropy fell after it.

Source: TEPO (arXiv:2602.02050), section 3.3 (eq. 11-13), Tables 2 to 4. Variants, and
everything else, are those of tepo_grpo.py. The entropies are those of the policy that
sampled. [ours] marks what the paper does not give.

    python -m launch.train_rl --config=configs/tepo_dense.py --workdir=/runs/dense
    python -m launch.train_rl --config=configs/tepo_dense.py:search \
        --workdir=/runs/dense_search

Not yet run at paper size: no accelerator was at hand. ":tiny" runs in the tests.
"""

from ml_collections.config_dict import ConfigDict

from configs import tepo_grpo


def get_config(size: str = "paper") -> ConfigDict:
    """The recipe in a variant of tepo_grpo."""
    config = tepo_grpo.get_config(size)
    config.credit = ConfigDict(
        {
            "name": "tepo_dense",
            "alpha": 0.5,  # [ours] Bonus of a call that lowers the entropy.
            "final": "final_traj",  # [ours] For tokens after the last call.
            "eps": 1e-6,  # [ours]
            "markup": "in",  # [ours]
        }
    )
    return config
