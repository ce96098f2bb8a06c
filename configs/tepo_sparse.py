r"""TEPO sparse: the reward times the share of calls that lowered the entropy.

Source: TEPO (arXiv:2602.02050), section 3.2 (eq. 8-10), Tables 2 to 4. Variants, and
everything else, are those of tepo_grpo.py. The entropies are those of the policy that
sampled. [ours] marks a number that the paper does not give.

    python -m launch.train_rl --config=configs/tepo_sparse.py --workdir=/runs/sparse
    python -m launch.train_rl --config=configs/tepo_sparse.py:search \
        --workdir=/runs/sparse_search

Not yet run at paper size: no accelerator was at hand. ":tiny" runs in the tests.
"""

from ml_collections.config_dict import ConfigDict

from configs import tepo_grpo


def get_config(size: str = "paper") -> ConfigDict:
    """The recipe in a variant of tepo_grpo."""
    config = tepo_grpo.get_config(size)
    config.credit = ConfigDict(
        {
            "name": "tepo_sparse",
            "eps": 1e-6,  # [ours]
            "markup": "in",  # [ours] The text of a call belongs to its segment.
        }
    )
    return config
