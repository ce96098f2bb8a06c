r"""ARPO: more rollouts where a tool result made the policy less certain.

Source: ARPO (arXiv:2507.19849): a budget of 16 with 8 from the root, at most 2 paths
from a branch; a baseline of TEPO (arXiv:2602.02050), Tables 2 to 4, which trains it on
the data and numbers of tepo_grpo.py; those stand here where ARPO says nothing else.
[code] marks a number of ARPO's released script, [ours] one that neither gives.
Variants:

    paper        reasoning; soft advantages, which is plain GRPO and the authors' choice
    search       deep search
    hard         reasoning; a shared prefix gets the mean of the paths through it
    search_hard  deep search with those

    python -m launch.train_rl --config=configs/arpo.py --workdir=/runs/arpo
    python -m launch.train_rl --config=configs/arpo.py:search \
        --workdir=/runs/arpo_search

Not yet run at paper size: no accelerator was at hand. ":tiny" runs in the tests.
"""

from ml_collections.config_dict import ConfigDict

from configs import tepo_grpo, toy

VARIANTS = ("paper", "search", "hard", "search_hard", "tiny")


def get_config(size: str = "paper") -> ConfigDict:
    """The recipe in one of VARIANTS."""
    toy.check_size(size, VARIANTS)
    base = {"hard": "paper", "search_hard": "search"}.get(size, size)
    config = tepo_grpo.get_config(base)
    config.group_size = 4 if size == "tiny" else 16  # TEPO has 8 for its own methods.
    config.explore = ConfigDict(
        {
            "name": "arpo",
            "roots": config.group_size // 2,
            "beam": 2,
            "entropy_weight": 0.2,  # [code]
            "branch_probability": 0.5,  # [code]
            "shared": "once",  # [ours] A shared token is trained in one trajectory.
        }
    )
    config.rollout.top_logprobs = 10  # [code] Entropies are those of the ten likeliest.
    if size.endswith("hard"):
        config.credit = ConfigDict({"name": "arpo_hard", "eps": 1e-6})
        config.explore.shared = "each"  # [ours] As equation 5 has it.
    return config
