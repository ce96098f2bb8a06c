r"""GRPO-TCR from a model that thinks at length, with and without supervised start.

Source: "Demystifying RL in Agentic Reasoning" (arXiv:2510.11701), sections 5.2 and 5.3:
from Qwen3-4B-Thinking-2507 itself the calls per trajectory go to zero (Figure 9); after
SFT on the real trajectories it calls, and ends no better than the instruction-tuned
model (Figure 10). Everything else is demystify_grpo_tcr.py. Variants:

    paper      without SFT, Figure 9
    after_sft  from what configs/demystify_sft.py:long_cot trains, Figure 10

    python -m launch.train_rl --config=configs/demystify_long_cot.py \
        --workdir=/runs/long_cot
    python -m launch.train_rl --config=configs/demystify_long_cot.py:after_sft \
        --workdir=/runs/long_cot_after_sft

Not yet run at paper size: no accelerator was at hand. ":tiny" runs in the tests.
"""

from ml_collections.config_dict import ConfigDict

from configs import demystify_grpo_tcr, toy

PATHS = {
    "paper": "models/qwen3-4b-thinking-2507",
    "after_sft": "models/qwen3-4b-thinking-2507-sft",
}


def get_config(size: str = "paper") -> ConfigDict:
    """The recipe in a variant of PATHS or at size "tiny"."""
    toy.check_size(size, (*PATHS, "tiny"))
    config = demystify_grpo_tcr.get_config("tiny" if size == "tiny" else "paper")
    if size != "tiny":
        config.model.path = PATHS[size]
    return config
