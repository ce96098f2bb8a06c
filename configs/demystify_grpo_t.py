"""GRPO-T on Qwen3-4B: token-level loss, symmetric clip, KL, no overlong penalty.

Source: "Demystifying RL in Agentic Reasoning" (arXiv:2510.11701), section 2.2. The KL
estimator is not stated; k3 is GRPO's. Results: section 4.1, Figure 4. Variants, and
numbers that are not here, are those of demystify_grpo_tcr.py.

    python -m launch.train_rl --config=configs/demystify_grpo_t.py --workdir=/runs/t

Not yet run at paper size: no accelerator was at hand. ":tiny" runs in the tests.
"""

from ml_collections.config_dict import ConfigDict

from configs import demystify_grpo_tcr


def get_config(size: str = "paper") -> ConfigDict:
    """The recipe in a variant of demystify_grpo_tcr."""
    config = demystify_grpo_tcr.get_config(size)
    config.surrogate.eps_high = 0.2
    config.kl = {"name": "k3"}
    config.kl_coef = 0.001
    config.reward = ConfigDict(
        {
            "name": "outcome_with_tool_bonus",
            "reading": "code",
            "bonus": 0.1,
            "max_bonus_calls": config.reward.max_bonus_calls,
        }
    )
    return config
