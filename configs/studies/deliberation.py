r"""What the tool weight, a bonus for tokens before a call, and a cap on calls do.

arXiv:2510.11701 rewards each call with +0.1 and asks what a negative weight, a bonus
for reasoning before a call, and hard caps would do. The outcome counts +1 or -1.

    python -m launch.sweep --config=configs/studies/deliberation.py --seeds=5 \
        --variants=flat,more_calls,fewer_calls,reasoning,cap \
        --out=runs/studies/deliberation
"""

from ml_collections.config_dict import ConfigDict

from agentic_jax.trajectory import Trajectory
from configs.studies import base

_WEIGHTED = "configs.studies.deliberation:outcome_and_deliberation"
_PLAIN = {"call_weight": 0.0, "token_bonus": 0.0, "most_tokens": 0}
_CAPPED = {"name": "configs.studies.tools:calculator", "max_calls": 1}
_ARMS = {
    "flat": {"reward": {"name": _WEIGHTED, **_PLAIN}},
    "more_calls": {"reward": {"name": _WEIGHTED, **_PLAIN, "call_weight": 0.1}},
    "fewer_calls": {"reward": {"name": _WEIGHTED, **_PLAIN, "call_weight": -0.05}},
    "reasoning": {
        "reward": {
            "name": _WEIGHTED,
            "call_weight": 0.0,
            "token_bonus": 0.05,
            "most_tokens": 8,
        }
    },
    "cap": {
        "reward": {"name": _WEIGHTED, **_PLAIN},
        "tools": {"python": _CAPPED},
    },
}


def get_config(variant: str = "reasoning") -> ConfigDict:
    """One arm, or "tiny"."""
    return base.arm(variant, _ARMS)


def outcome_and_deliberation(
    score: float,
    trajectory: Trajectory,
    *,
    call_weight: float,
    token_bonus: float,
    most_tokens: int,
) -> float:
    """Plus or minus 1, a weight for each call, and a bonus for tokens before calls.

    Args:
        score: correctness in [0, 1]; 1 is right.
        trajectory: whose calls count, whatever their status.
        call_weight: reward of a call.
        token_bonus: of a token sampled before the first call of a turn.
        most_tokens: of a trajectory that earn it.
    """
    before = sum(turn.call_spans[0][0] for turn in trajectory.turns if turn.call_spans)
    outcome = 1.0 if score >= 1.0 else -1.0
    calls = call_weight * len(trajectory.calls)
    return outcome + calls + token_bonus * min(before, most_tokens)
