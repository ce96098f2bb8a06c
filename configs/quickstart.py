r"""GRPO-TCR on word problems whose products a small policy cannot work out by itself.

Source: the recipe of "Demystifying RL in Agentic Reasoning" (arXiv:2510.11701): token
ratio, clip-higher, token-mean loss, tool and overlong rewards, no KL; model, problems
and lengths are ours, small enough for two CPU cores.

    make quickstart
    python -m launch.train_rl --config=configs/quickstart.py --workdir=runs/rl \
        --config.model.path=runs/quickstart/sft/model

Measured: see the README. ":tiny" needs nothing but the package and takes seconds.
"""

from ml_collections.config_dict import ConfigDict

from configs import toy


def get_config(size: str = "small") -> ConfigDict:
    """The recipe at size "small" (the quickstart's) or "tiny" (the tests')."""
    toy.check_size(size, ("small", "tiny"))
    config = toy.host_sections()
    config.num_steps = 18
    config.prompts_per_step = 16
    config.group_size = 8
    config.refill_rounds = 0
    config.overlap = False
    config.max_fault_fraction = 0.1
    config.model = {
        "name": "directory",
        "path": "runs/quickstart/sft/model",
        "dtype": "float32",
        "layer_loop": "unroll",
        "remat": "none",
    }
    config.tasks = {
        "name": "word_problems",
        "split": "train",
        "count": 2_000,
        "seed": 0,
        "digits": [2, 2],
    }
    config.draw = {"name": "shuffled"}
    config.explore = {"name": "independent"}
    config.reward = {
        "name": "outcome_with_tool_bonus_and_overlong",
        "reading": "code",
        "bonus": 0.1,
        "max_bonus_calls": 4,
        "max_tokens": 80,
        "buffer_tokens": 24,
        "count": "response",
    }
    config.select = {"name": "all"}
    config.credit = {"name": "group_normalized", "eps": 1e-6}
    config.log_ratio = {"name": "token"}
    config.surrogate = {"name": "clipped", "eps_low": 0.2, "eps_high": 0.28}
    config.aggregation = {"name": "token_mean"}
    config.correction = {"name": "none"}
    config.kl = {"name": "none"}
    config.kl_coef = 0.0
    config.entropy_coef = 0.0
    config.batch.updates_per_step = 2
    config.optimizer.schedule = {
        "name": "cosine",  # A constant rate unsettles the policy once it is right.
        "learning_rate": 3e-4,
        "warmup_steps": 4,
        "decay_steps": 36,
        "end_fraction": 0.05,
    }
    config.log = {"groups_per_step": 16}
    config.stages = []
    config.early_stop = {}
    if size == "tiny":
        toy.shrink(config)
        config.num_steps = 2
        config.prompts_per_step = 2
        config.group_size = 4
        config.log.groups_per_step = 2
    return config
