r"""Training problems of two kinds or of eight, as many of them, tested on all eight.

A stand-in for the diverse against math-only data of arXiv:2510.11701, section 3.2: the
kinds are the stories that a product is wrapped in, so that "domain" is mild here.

    python -m launch.sweep --config=configs/studies/diversity.py --seeds=5 \
        --variants=narrow,diverse --out=runs/studies/diversity
"""

from collections.abc import Sequence

from ml_collections.config_dict import ConfigDict

from agentic_jax.data.word_problems import word_problems
from agentic_jax.trajectory import Task
from configs.studies import base

KINDS = (  # Words that only one story has.
    *("holds", "rows", "buys", "packs"),
    *("shops", "bag", "truck", "reads"),
)
_SOURCE = {"name": "configs.studies.diversity:stories", "count": 200}
_ARMS = {
    "narrow": {"tasks": {**_SOURCE, "kinds": ["truck", "reads"]}},
    "diverse": {"tasks": {**_SOURCE, "kinds": list(KINDS)}},
}


def get_config(variant: str = "diverse") -> ConfigDict:
    """One arm, or "tiny"."""
    return base.arm(variant, _ARMS)


def stories(*, count: int, kinds: Sequence[str]) -> list[Task]:
    """Training products of two-digit numbers whose story has one of these words.

    Args:
        count: of problems.
        kinds: among KINDS.
    """
    drawn = word_problems(split="train", count=20 * count, seed=0, digits=(2, 2))
    chosen = [t for t in drawn if _kind(t) in kinds]
    return chosen[:count]


def _kind(task: Task) -> str:
    """The one of KINDS that the story has; "packs" is a noun of the one that buys."""
    words = task.messages[0]["content"].split()
    return "buys" if "buys" in words else next(k for k in KINDS if k in words)
