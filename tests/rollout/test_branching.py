import math

import numpy as np
import pytest

from agentic_jax.rollout.branching import (
    aepo_branch_score,
    aepo_branches,
    arpo_branch_score,
    arpo_branches,
    root_rollouts,
    step_entropy,
)


def test_step_entropy_is_a_sum_over_the_first_tokens():
    top = np.log(np.array([[0.5, 0.25], [0.5, 0.25], [1.0, 1.0]]))
    # Each of the first two tokens: 0.5 ln 2 + 0.25 ln 4 = ln 2.
    found = step_entropy(top, vocab_size=4, max_tokens=2)
    assert found == pytest.approx(2 * math.log(2) / math.log(4))


def test_arpo_branches_where_entropy_rose_and_the_score_is_low():
    assert arpo_branch_score(0.6, 1.0, entropy_weight=0.2) == pytest.approx(0.4)
    assert arpo_branch_score(0.1, 1.0, entropy_weight=0.2) == 0.0
    assert arpo_branches(0.5, branch_probability=0.5)
    assert not arpo_branches(0.51, branch_probability=0.5)


def test_aepo_branches_at_high_scores_and_tires_of_one_path():
    options = {"entropy_weight": 0.2}
    assert aepo_branch_score(0.6, 1.0, 0, **options) == pytest.approx(0.8)
    assert aepo_branch_score(0.6, 1.0, 10, **options) == pytest.approx(0.4)
    assert aepo_branch_score(0.6, 1.0, 30, **options) == 0.0
    assert aepo_branches(0.5, branch_probability=0.5)
    assert not aepo_branches(0.49, branch_probability=0.5)


@pytest.mark.parametrize(
    "root, tool, expected",
    [(1.0, 1.0, 9), (100.0, 0.0, 16), (0.0, 100.0, 1)],  # 16 * 1/2 = 8, plus 1
)
def test_root_rollouts_stay_within_the_budget(root, tool, expected):
    assert root_rollouts(16, root, tool, beta=0.5) == expected
