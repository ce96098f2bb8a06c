r"""Clip-higher by overlong shaping, and the sequence ratio at matched clip bounds.

The 2x2 that arXiv:2510.11701 lacks: its GRPO-TCR has both, GRPO-T neither. Its GRPO-SCR
changes the ratio, the aggregation and, a thousandfold, the bounds at once; here it also
runs with TCR's bounds.

    python -m launch.sweep --config=configs/studies/clip_and_length.py --seeds=5 \
        --variants=plain,clip_higher,overlong,tcr,scr,scr_matched \
        --out=runs/studies/clip_and_length
"""

from ml_collections.config_dict import ConfigDict

from configs.studies import base

_BONUS = {"reading": "code", "bonus": 0.1, "max_bonus_calls": 4}
_TOOL = {"name": "outcome_with_tool_bonus", **_BONUS}
_OVERLONG = {
    "name": "outcome_with_tool_bonus_and_overlong",
    **_BONUS,
    "max_tokens": 64,  # A call and its answer take 37 tokens.
    "buffer_tokens": 24,
    "count": "response",
}
_HIGHER = {"name": "clipped", "eps_low": 0.2, "eps_high": 0.28}
_TIGHT = {"name": "clipped", "eps_low": 3e-4, "eps_high": 4e-4}
_SEQUENCE = {
    "log_ratio": {"name": "sequence"},
    "aggregation": {"name": "sequence_mean"},
    "reward": _OVERLONG,
}
_ARMS = {
    "plain": {"reward": _TOOL},
    "clip_higher": {"reward": _TOOL, "surrogate": _HIGHER},
    "overlong": {"reward": _OVERLONG},
    "tcr": {"reward": _OVERLONG, "surrogate": _HIGHER},
    "scr": {**_SEQUENCE, "surrogate": _TIGHT},
    "scr_matched": {**_SEQUENCE, "surrogate": _HIGHER},
}


def get_config(variant: str = "tcr") -> ConfigDict:
    """One arm, or "tiny"."""
    return base.arm(variant, _ARMS)
