import dataclasses

import pytest

from agentic_jax.config import bind
from agentic_jax.rewards.shaping import REWARDS
from tests.fakes import trajectory, turn


def calling(*before):
    """A trajectory whose turns write so many tokens before a call of two tokens."""
    turns = [
        dataclasses.replace(
            turn(range(n + 2), [9], ["error"]), call_spans=((n, n + 2),)
        )
        for n in before
    ]
    return trajectory([1], *turns, turn([5, 6, 7]))


@pytest.mark.parametrize(
    "spec, before, expected",
    [
        ({"name": "tool_weight", "weight": -0.05}, (0, 3), -0.1),
        ({"name": "tool_weight", "weight": 0.1, "max_calls": 1}, (0, 3), 0.1),
        ({"name": "reasoning_bonus", "bonus": 0.01, "max_tokens": 4}, (2, 9), 0.06),
        ({"name": "reasoning_bonus", "bonus": 0.01, "max_tokens": 4}, (), 0.0),
        ({"name": "call_cap", "max_calls": 2, "penalty": 0.5}, (1, 1), 0.0),
        ({"name": "call_cap", "max_calls": 2, "penalty": 0.5}, (1, 1, 1), -0.5),
        # 3 + 4 + 3 tokens; 10 of 12 with a buffer of 4: (8 - 10) / 4.
        ({"name": "overlong", "max_tokens": 12, "buffer_tokens": 4}, (0, 1), -0.5),
    ],
)
def test_matches_hand_worked_values(spec, before, expected):
    for score in (0.0, 1.0):
        assert bind(spec, REWARDS)(score, calling(*before)) == pytest.approx(expected)


def test_a_sum_adds_its_terms_and_refuses_unknown_ones():
    terms = {
        "right": {"name": "outcome"},
        "calls": {"name": "tool_weight", "weight": -0.05},
    }
    reward = bind({"name": "sum", "terms": terms}, REWARDS)
    assert reward(1.0, calling(0, 0)) == pytest.approx(0.9)
    terms["calls"]["wieght"] = 1.0
    with pytest.raises(ValueError, match="did you mean 'weight'"):
        reward(1.0, calling(0))


def test_calls_whose_place_is_unknown_are_an_error():
    reward = bind({"name": "reasoning_bonus", "bonus": 1, "max_tokens": 4}, REWARDS)
    with pytest.raises(ValueError, match="has calls, but no call_spans"):
        reward(1.0, trajectory([1], turn([2], [3], ["ok"])))
