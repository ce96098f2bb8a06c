r"""Problems by difficulty for a weak policy: half of them are out of its reach.

48 problems: 12 products of one-digit numbers, 12 of two-digit ones, 24 of four-digit
ones, whose factors the start cannot copy. Unfiltered; those that the start solves
sometimes in 8 samples (model-aware, arXiv:2510.11701, section 3.3), at the price of 384
rollouts before training; and the draw that learns difficulty while it trains.

    for seed in 0 1 2 3 4; do python -m launch.curate rl \
        --config=configs/studies/difficulty.py:unfiltered --config.seed=$seed \
        --config.model.path=runs/studies/start/second/seed_$seed/model \
        --out=runs/studies/curated/seed_$seed; done
    python -m launch.sweep --config=configs/studies/difficulty.py --seeds=5 \
        --variants=unfiltered,online,model_aware --out=runs/studies/difficulty
"""

from ml_collections.config_dict import ConfigDict

from configs.studies import base

_FIELDS = {"id": "id", "messages": "messages", "answer": "answer", "domain": "domain"}
_ARMS = {
    "unfiltered": {},
    "model_aware": {
        "tasks": {
            "name": "jsonl",
            "path": "runs/studies/curated/seed_{seed}/problems.jsonl",
            "fields": _FIELDS,
        }
    },
    "online": {
        "draw": {
            "name": "by_difficulty",
            "half_life": 2.0,
            "prior": 2.0,
            "too_hard": 0.15,  # 0 of 8 gives 0.1, 1 of 8 gives 0.2.
            "too_easy": 0.85,
        }
    },
}


def get_config(variant: str = "online") -> ConfigDict:
    """One arm, or "tiny"."""
    config = base.arm(variant, _ARMS)
    if variant == "tiny":
        return config
    config.eval.update({"every": 4, "samples": 1})
    if variant != "model_aware":
        config.tasks = {
            "name": "mixed",
            "sources": {
                f"{n}_digits": {
                    "weight": weight,
                    "tasks": {
                        "name": "word_problems",
                        "split": "train",
                        "count": 200,
                        "seed": n,
                        "digits": [n, n],
                    },
                }
                for n, weight in ((1, 1.0), (2, 1.0), (4, 2.0))
            },
            "count": 48,
            "seed": 0,
        }
    return config
