r"""DemyAgent-4B: GRPO-TCR with eps_high 0.315 on all problems, three epochs.

Source: "Demystifying RL in Agentic Reasoning" (arXiv:2510.11701), section 6 and Table 2
(AIME2025 70.0, average of 32). The policy starts as demystify_sft.py leaves it.
Everything else is demystify_grpo_tcr.py.

    python -m launch.train_rl --config=configs/demyagent_4b.py --workdir=/runs/demyagent
    python -m launch.evaluate --config=configs/eval_math.py \
        --config.model.path=/runs/demyagent/model --out=/runs/demyagent/eval.json

Not yet run at paper size: no accelerator was at hand. ":tiny" runs in the tests.
"""

from ml_collections.config_dict import ConfigDict

from configs import demystify_grpo_tcr, toy


def get_config(size: str = "paper") -> ConfigDict:
    """The recipe at size "paper" or "tiny"."""
    toy.check_size(size, ("paper", "tiny"))
    config = demystify_grpo_tcr.get_config(size)
    config.surrogate.eps_high = 0.315
    return config
