import math

import numpy as np
import pytest

from agentic_jax.evaluation.seeds import (
    compare_arms,
    last_values,
    paired_difference,
    t_interval,
)


def test_t_interval_matches_a_hand_worked_one():
    # Mean 2, std 1, error 1 / sqrt(3); the 97.5% point of t with 2 degrees is 4.3027.
    value, low, high = t_interval([1.0, 2.0, 3.0])
    half = 4.302652729911275 / math.sqrt(3)
    np.testing.assert_allclose([value, low, high], [2, 2 - half, 2 + half], rtol=1e-9)


def test_one_seed_has_no_interval_and_none_is_refused():
    value, low, high = t_interval([0.5])
    assert value == 0.5 and math.isnan(low) and math.isnan(high)
    with pytest.raises(ValueError, match="at least one"):
        t_interval([])


def test_differences_are_taken_seed_by_seed():
    # 2 - 1 and 5 - 4: always 1, however far the seeds are apart; seed 9 has no pair.
    change = paired_difference({0: 2.0, 1: 5.0, 9: 100.0}, {0: 1.0, 1: 4.0})
    assert change == (1.0, 1.0, 1.0)
    assert paired_difference({0: 2.0}, {1: 1.0}) is None


def test_last_values_average_what_the_last_rows_have():
    rows = [
        {"step": 0, "a": 9.0},
        {"step": 1, "a": 1.0, "eval": 0.5},
        {"step": 2, "a": 3.0},
    ]
    assert last_values(rows, last=2) == {"a": 2.0, "eval": 0.5}
    assert last_values(rows, last=1) == {"a": 3.0}
    assert last_values([], last=1) == {}


def test_arms_are_compared_with_the_first_one_where_both_have_the_metric():
    table = compare_arms(
        {
            "old": {0: {"a": 1.0}, 1: {"a": 2.0}},
            "new": {0: {"a": 3.0, "b": 7.0}, 1: {"a": 4.0}},
        }
    )
    assert table["old"]["a"]["change"] is None
    assert table["new"]["a"]["change"] == [2.0, 2.0, 2.0]
    assert table["new"]["a"]["seeds"] == {0: 3.0, 1: 4.0}
    assert table["new"]["b"]["change"] is None
    assert table["new"]["b"]["low"] is None  # One seed.
