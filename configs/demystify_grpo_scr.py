"""GRPO-SCR on Qwen3-4B: sequence ratio and loss, tiny clip range, overlong reward.

Source: "Demystifying RL in Agentic Reasoning" (arXiv:2510.11701), section 2.2; the
ratio is GSPO's (arXiv:2507.18071). Results: section 4.1, Figure 4. Variants, and
numbers that are not here, are those of demystify_grpo_tcr.py.

    python -m launch.train_rl --config=configs/demystify_grpo_scr.py --workdir=/runs/scr

Not yet run at paper size: no accelerator was at hand. ":tiny" runs in the tests.
"""

from ml_collections.config_dict import ConfigDict

from configs import demystify_grpo_tcr


def get_config(size: str = "paper") -> ConfigDict:
    """The recipe in a variant of demystify_grpo_tcr."""
    config = demystify_grpo_tcr.get_config(size)
    config.log_ratio = {"name": "sequence"}
    config.surrogate = ConfigDict(
        {"name": "clipped", "eps_low": 3e-4, "eps_high": 4e-4}
    )
    config.aggregation = {"name": "sequence_mean"}
    return config
