r"""Supervised start of the studies: a 0.1M-parameter Qwen3 from scratch.

Products of one-digit numbers, which it can learn by heart, and of two-digit ones, for
which it needs the tool; 4 in 10 trajectories use it, 4.5 answer at once, 1.5 recover
from an error.

    python -m launch.teacher --config=configs/studies/start.py --count=1500 \
        --digits=1,1 --out=runs/studies/teacher_1.jsonl
    python -m launch.teacher --config=configs/studies/start.py --count=1500 \
        --digits=2,2 --out=runs/studies/teacher_2.jsonl
    cat runs/studies/teacher_?.jsonl > runs/studies/teacher.jsonl
    python -m launch.sweep --config=configs/studies/start.py --seeds=5 \
        --variants=first --seed_keys=seed,model.seed --out=runs/studies/start
    python -m launch.sweep --config=configs/studies/start.py --seeds=5 \
        --variants=second --out=runs/studies/start

The first 600 steps leave a policy that miscopies numbers; 300 more mend most of that.
"""

from ml_collections.config_dict import ConfigDict

from configs import quickstart, quickstart_sft, toy
from configs.studies import base


def get_config(variant: str = "first") -> ConfigDict:
    """The "first" steps, from scratch, the "second" ones after them, or "tiny"."""
    toy.check_size(variant, ("first", "second", "tiny"))
    config = quickstart_sft.get_config("tiny" if variant == "tiny" else "small")
    if variant == "tiny":
        return config
    steps = {"first": 600, "second": 300}[variant]
    config.num_steps = config.optimizer.schedule.decay_steps = steps
    config.checkpoint.update({"every": steps, "keep": 1})
    if variant == "first":
        config.model.update({"width": 64, "num_layers": 2})
    else:
        path = "runs/studies/start/first/seed_{seed}/model"
        config.model = {**quickstart.get_config().model, "path": path}
    config.trajectories = "runs/studies/teacher.jsonl"
    base.resize(config)
    config.optimizer.schedule.learning_rate = {"first": 4e-3, "second": 3e-3}[variant]
    return config
