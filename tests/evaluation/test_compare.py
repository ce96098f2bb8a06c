import json

import numpy as np
import pytest

from agentic_jax.evaluation.compare import (
    compare,
    compare_results,
    permutation_p_value,
    read_results,
)

BEFORE = {"a": [0.0, 0.0], "b": [1.0, 0.0], "c": [1.0, 1.0], "only": [1.0]}
AFTER = {"c": [1.0], "b": [1.0], "a": [1.0]}


def test_problems_are_paired_by_their_ids():
    """Means 0, 0.5, 1 against 1, 1, 1: differences 1, 0.5, 0."""
    found = compare(BEFORE, AFTER, seed=0)
    assert (found.problems, found.before, found.after) == (3, 0.5, 1.0)
    assert found.difference == pytest.approx(0.5)
    assert (found.better, found.worse) == (2, 0)
    assert found.low <= 0.5 <= found.high
    assert found == compare(BEFORE, AFTER, seed=0)
    assert "+0.500" in str(found)


def test_p_value_is_the_share_of_sign_flips_that_are_as_extreme():
    # Three equal differences: 2 of the 8 flips are as extreme, so p is 0.25; a zero
    # and the sign change nothing.
    rng = np.random.default_rng(0)
    for differences in ([1, 1, 1], [-1, -1, -1, 0], [0.1, 0.1, 0.1]):
        p = permutation_p_value(np.array(differences), rng=rng)
        assert p == pytest.approx(0.25, abs=0.02)
    assert permutation_p_value(np.zeros(5), rng=rng) == 1.0
    assert permutation_p_value(np.ones(40), rng=rng) == 1 / 10_001


def test_p_values_of_equal_policies_are_uniform():
    """Under the null, P(p <= 0.1) is 0.1: 200 draws of 30 pairs, two sigma 0.042."""
    rng = np.random.default_rng(1)
    low = [
        permutation_p_value(rng.normal(size=30), rng=rng, num_permutations=500) <= 0.1
        for _ in range(200)
    ]
    assert 0.05 < np.mean(low) < 0.15


def test_nothing_in_common_or_no_scores_is_an_error():
    with pytest.raises(ValueError, match="none has the same id"):
        compare({"a": [1.0]}, {"b": [1.0]}, seed=0)
    with pytest.raises(ValueError, match="no benchmark in common"):
        compare_results({"tools": {}}, {"self_contained": {}}, seed=0)
    with pytest.raises(ValueError, match="no scores"):
        compare_results({"tools": {}}, {"tools": {"scores": {}}}, seed=0)
    with pytest.raises(ValueError, match="problem 'b' has no score"):
        compare(BEFORE, {"a": [1.0], "b": []}, seed=0)


def test_results_are_read_back_and_other_files_refused(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"tools": {"scores": BEFORE}}))
    assert read_results(path) == {"tools": {"scores": BEFORE}}
    for text in ("[]", "{", '{"tools": 3}'):
        path.write_text(text)
        with pytest.raises(ValueError, match="no result file"):
            read_results(path)
