r"""How wide the upper clip range is: the entropy sweep of GRPO-TCR.

Source: "Demystifying RL in Agentic Reasoning" (arXiv:2510.11701), section 4.3 and
Figure 6, which shows 0.28, 0.315 and 0.35 for Qwen3-4B and the first two for
Qwen2.5-7B. Everything else is demystify_grpo_tcr.py. Variants:

    paper, 0.28, 0.35       Qwen3-4B; "paper" is 0.315
    7b_0.28, 7b_0.315       Qwen2.5-7B
    scheduled, steered      Qwen3-4B; ours, which the paper leaves open: from 0.35 to
                            0.28 in 450 steps, and opened when entropy is low

    for v in 0.28 paper 0.35; do
        python -m launch.train_rl --config=configs/demystify_eps_high.py:$v \
            --workdir=/runs/eps_high_$v
    done

Not yet run at paper size: no accelerator was at hand. ":tiny" runs in the tests.
"""

from ml_collections.config_dict import ConfigDict

from configs import demystify_grpo_tcr, toy

EPS_HIGH = {
    "paper": 0.315,
    "0.28": 0.28,
    "0.35": 0.35,
    "7b_0.28": 0.28,
    "7b_0.315": 0.315,
    "scheduled": {"name": "linear", "start": 0.35, "end": 0.28, "num_steps": 450},
    "steered": {
        "name": "from_entropy",
        "target": 0.3,
        "least": 0.28,
        "most": 0.35,
        "width": 0.2,
    },
}


def get_config(size: str = "paper") -> ConfigDict:
    """The recipe in a variant of EPS_HIGH; "tiny" steers by entropy."""
    toy.check_size(size, (*EPS_HIGH, "tiny"))
    base = {"tiny": "tiny"}.get(size, "7b" if size.startswith("7b") else "paper")
    config = demystify_grpo_tcr.get_config(base)
    eps_high = EPS_HIGH["steered" if size == "tiny" else size]
    config.surrogate = ConfigDict({**config.surrogate, "eps_high": eps_high})
    return config
