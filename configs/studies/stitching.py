r"""Supervised starts from real trajectories and from stitched ones.

Real: the teacher's calls are run; 3 in 10 trajectories begin with a call that fails and
is mended. Stitched (arXiv:2510.11701, section 3.1): written solutions whose equations
were replaced by calls afterwards, so that no call ever fails. Both go on from the first
steps of start.py.

    for kind in sft stitched; do python -m launch.curate $kind \
        --config=configs/studies/stitching.py:problems --out=runs/studies/data_$kind \
        --curation=configs/studies/stitching.py:curation; done
    python -m launch.sweep --config=configs/studies/stitching.py --seeds=5 \
        --variants=stitched,real --out=runs/studies/stitching
"""

from ml_collections.config_dict import ConfigDict

from configs import toy
from configs.curation import default
from configs.studies import base, start

_TEACHER = {
    "name": "word_problems",
    "fractions": {"tool": 0.7, "direct": 0.0, "recovery": 0.3},
}


def get_config(variant: str = "real") -> ConfigDict:
    """SFT "real", "stitched" or "tiny"; "problems" and "curation" make the data."""
    toy.check_size(variant, ("real", "stitched", "problems", "curation", "tiny"))
    if variant == "curation":
        options = default.get_config()
        options.sft.player = ConfigDict(_TEACHER)
        options.sft.samples = 1
        return options
    if variant == "problems":
        config = base.rl_config()
        config.model = toy.toy_model(seed=0)
        config.tasks.count = 1_500
        return config
    config = start.get_config("tiny" if variant == "tiny" else "second")
    if variant == "tiny":
        return config
    kind = {"real": "sft", "stitched": "stitched"}[variant]
    config.trajectories = f"runs/studies/data_{kind}/trajectories.jsonl"
    config.num_steps = config.optimizer.schedule.decay_steps = 100
    config.checkpoint.every = 100
    return config
