r"""Supervised start of the quickstart: a 0.9M-parameter Qwen3 from scratch.

The trajectories are a scripted teacher's, with its calls really run: some use the tool,
some answer at once, some recover from an error. launch.quickstart makes them.

    python -m launch.train_sft --config=configs/quickstart_sft.py --workdir=runs/sft \
        --config.trajectories=runs/quickstart/data/teacher.jsonl
"""

from ml_collections.config_dict import ConfigDict

from configs import toy


def get_config(size: str = "small") -> ConfigDict:
    """The recipe at size "small" or "tiny"."""
    toy.check_size(size, ("small", "tiny"))
    config = toy.host_sections()
    config.num_steps = 800
    config.model = toy.toy_model(seed=0)
    config.trajectories = "runs/quickstart/data/teacher.jsonl"
    config.trajectories_per_step = 32
    config.stop_at_score = 1.0
    config.optimizer.schedule = {
        "name": "cosine",
        "learning_rate": 2e-3,
        "warmup_steps": 20,
        "decay_steps": 800,
        "end_fraction": 0.05,
    }
    config.checkpoint.every = 400
    if size == "tiny":
        toy.shrink(config)
        config.num_steps = 2
        config.trajectories_per_step = 4
    return config
