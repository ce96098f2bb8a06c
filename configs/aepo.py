r"""AEPO: a root/branch split by entropy, and gradients kept above the clip bound.

Source: AEPO (arXiv:2510.14545): a pilot rollout decides how many of the 16 start at the
root, chains of branches get rarer, the upper clip keeps its gradient, and advantages
grow with the token's entropy; a baseline of TEPO (arXiv:2602.02050), Tables 2 to 4,
which trains it on the data and numbers of tepo_grpo.py. [code] marks a number of the
released script, [ours] one that neither gives. Variants: paper (reasoning), search.

    python -m launch.train_rl --config=configs/aepo.py --workdir=/runs/aepo
    python -m launch.train_rl --config=configs/aepo.py:search \
        --workdir=/runs/aepo_search

Not yet run at paper size: no accelerator was at hand. ":tiny" runs in the tests.
"""

from ml_collections.config_dict import ConfigDict

from configs import tepo_grpo


def get_config(size: str = "paper") -> ConfigDict:
    """The recipe in a variant of tepo_grpo."""
    config = tepo_grpo.get_config(size)
    config.group_size = 4 if size == "tiny" else 16
    config.explore = ConfigDict(
        {
            "name": "aepo",
            "beta": 0.5,
            "beam": 2,
            "entropy_weight": 0.2,  # [code]
            "branch_probability": 0.5,  # [code]
            "shared": "once",  # [ours] A shared token is trained in one trajectory.
        }
    )
    config.rollout.top_logprobs = 10  # [code] Entropies are those of the ten likeliest.
    config.surrogate.update(name="gradient_keeping", cap=3.0)  # [code] verl's cap.
    config.credit = ConfigDict({"name": "aepo", "eps": 1e-6, "alpha": 0.2})
    return config
