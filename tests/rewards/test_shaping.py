import dataclasses
import json
import pathlib

import numpy as np
import pytest

from agentic_jax.config import bind
from agentic_jax.rewards import shaping
from agentic_jax.trajectory import (
    CallRecord,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
)

GOLDEN = pathlib.Path(__file__).resolve().parents[3] / "shared" / "golden"


def played(num_calls: int, *, sampled: int = 8, results: int = 5) -> Trajectory:
    call = CallRecord(ToolCall("python", {}), ToolResult("", "error"), 0.0)
    turn = Turn(
        np.zeros(sampled, np.int32),
        np.zeros(sampled, np.float32),
        0,
        (call,) * num_calls,
        np.zeros(results, np.int32),
    )
    return Trajectory(Task("t", (), "4"), np.zeros(3, np.int32), (turn,), "answer")


@pytest.mark.parametrize(
    "score, calls, code, paper, flat",
    [
        (1.0, 0, 1.0, 1.0, 1.0),
        (1.0, 3, 1.0, 1.3, 1.0),
        (0.0, 0, -1.0, -1.0, -1.0),
        (0.0, 2, -0.8, -0.8, -1.0),
        (0.0, 4, -0.6, -0.6, -1.0),
        (0.0, 5, -0.6, -0.5, -1.0),  # the code's bonus saturates
        (0.0, 12, -0.6, 0.0, -1.0),  # the paper's does at 0
        (0.9, 0, -1.0, -1.0, -1.0),  # partly right is wrong
    ],
)
def test_the_three_readings_of_the_tool_bonus(score, calls, code, paper, flat):
    for reading, wanted in {"code": code, "paper": paper, "flat": flat}.items():
        reward = shaping.outcome_with_tool_bonus(score, played(calls), reading=reading)
        assert reward == pytest.approx(wanted, abs=1e-12)


def test_code_is_the_default_reading():
    assert shaping.outcome_with_tool_bonus(0.0, played(5)) == -0.6


def test_calls_beyond_the_maximum_earn_nothing():
    options = {"reading": "paper", "max_bonus_calls": 2, "bonus": 0.25}
    assert shaping.outcome_with_tool_bonus(1.0, played(5), **options) == 1.5
    assert shaping.outcome_with_tool_bonus(0.0, played(1), **options) == -0.75


@pytest.mark.parametrize(
    "tokens, penalty",
    [(0, 0), (48, 0), (49, -1 / 16), (56, -0.5), (64, -1), (65, -1), (999, -1)],
)
def test_overlong_penalty_is_a_slope_before_the_limit(tokens, penalty):
    got = shaping.overlong_penalty(tokens, max_tokens=64, buffer_tokens=16)
    assert got == pytest.approx(penalty, abs=1e-12)


def test_length_counts_tool_results_unless_told_otherwise():
    reward = bind(
        {
            "name": "outcome_with_tool_bonus_and_overlong",
            "max_tokens": 14,
            "buffer_tokens": 4,
        },
        shaping.REWARDS,
    )
    # 8 sampled + 5 of results = 13 of 14: three quarters down the slope from 10.
    assert reward(1.0, played(1)) == pytest.approx(1 - 0.75)
    assert reward(0.0, played(1)) == pytest.approx(-0.9 - 0.75)
    assert reward(1.0, played(1), count="policy") == 1.0


def test_outcome_is_the_score_and_zero_is_a_score():
    assert shaping.outcome(0.0, played(3)) == 0.0
    assert shaping.outcome(0.5, played(3)) == 0.5


@pytest.mark.parametrize("score", [None, -0.1, 1.1, float("nan")])
def test_a_missing_or_impossible_score_is_refused(score):
    trajectory = dataclasses.replace(played(0), stop="fault")
    for reward in (shaping.outcome, shaping.outcome_with_tool_bonus):
        with pytest.raises(ValueError, match="score of task t is"):
            reward(score, trajectory)


def test_unknown_names_and_impossible_buffers_are_refused():
    with pytest.raises(ValueError, match="reading is 'papers'"):
        shaping.outcome_with_tool_bonus(1.0, played(0), reading="papers")
    with pytest.raises(ValueError, match="count is 'all'"):
        shaping.outcome_with_tool_bonus_and_overlong(
            1.0, played(0), max_tokens=9, buffer_tokens=1, count="all"
        )
    for buffer_tokens in (0, 10):
        with pytest.raises(ValueError, match=r"must be in \[1, 9\]"):
            shaping.overlong_penalty(1, max_tokens=9, buffer_tokens=buffer_tokens)


@pytest.mark.skipif(not GOLDEN.exists(), reason="no goldens beside the repository")
def test_agrees_with_the_reference_tool_rewards():
    for case in json.loads((GOLDEN / "reward_tool.json").read_text())["cases"]:
        right, calls = case["inputs"]["correct"], case["inputs"]["n_tool_rounds"]
        wanted = case["outputs"]
        columns = {"code": "code_score", "flat": "code_outcome_only"}
        for reading, key in {**columns, "paper": "reading_A_min0"}.items():
            got = shaping.tool_bonus_reward(right, calls, reading=reading, bonus=0.1)
            assert got == pytest.approx(wanted[key], abs=1e-12)


@pytest.mark.skipif(not GOLDEN.exists(), reason="no goldens beside the repository")
def test_agrees_with_the_reference_overlong_penalties():
    for case in json.loads((GOLDEN / "reward_overlong.json").read_text())["cases"]:
        limits = case["params"]
        got = [
            shaping.overlong_penalty(
                n, max_tokens=limits["L_max"], buffer_tokens=limits["L_cache"]
            )
            for n in case["inputs"]["lengths"]
        ]
        wanted = case["outputs"]["paper_piecewise"]
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-12)
