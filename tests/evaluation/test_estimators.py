import numpy as np
import pytest

from agentic_jax.evaluation.estimators import (
    avg_at_k,
    bootstrap_ci,
    maj_at_k,
    paired_difference,
    pass_at_k,
    pass_at_k_of_counts,
    standard_error,
    wilson_interval,
)


@pytest.mark.parametrize(
    "n, c, k, expected",
    [
        (4, 2, 2, 5 / 6),
        (4, 1, 2, 1 / 2),
        (5, 3, 1, 3 / 5),
        (5, 3, 2, 9 / 10),  # 1 - C(2, 2) / C(5, 2)
        (5, 3, 3, 1.0),
        (4, 0, 4, 0.0),
    ],
)
def test_pass_at_k_is_unbiased(n, c, k, expected):
    assert pass_at_k_of_counts(n, c, k=k) == pytest.approx(expected)
    scores = np.array([[1.0] * c + [0.5] * (n - c)])
    assert pass_at_k(scores, k=k)[0] == pytest.approx(expected)


def test_pass_at_k_needs_k_samples():
    with pytest.raises(ValueError, match="pass@5 needs at least 5 samples"):
        pass_at_k(np.zeros((1, 4)), k=5)


def test_average_and_its_standard_error_over_problems():
    values = avg_at_k(np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]]))
    np.testing.assert_allclose(values, [1.0, 0.5, 0.0])
    assert standard_error(values) == pytest.approx(0.2887, abs=1e-4)
    assert np.isnan(standard_error(values[:1]))


@pytest.mark.parametrize(
    "answers, right, expected",
    [
        (["b", "a", "a", "b"], "b", 1.0),  # a tie: the first seen wins
        (["a", "b", "b"], "a", 0.0),
        (["", None, "a"], "a", 0.0),  # unparsed answers vote together
    ],
)
def test_majority(answers, right, expected):
    scores = np.array([[float(answer == right) for answer in answers]])
    assert maj_at_k([answers], scores)[0] == expected


def test_majority_rejects_missing_scores():
    with pytest.raises(ValueError, match="must match"):
        maj_at_k([["a", "b"]], np.zeros((1, 3)))


def test_wilson_interval_of_12_in_30():
    np.testing.assert_allclose(wilson_interval(12, 30), [0.246, 0.577], atol=5e-4)
    assert wilson_interval(0, 5)[0] == pytest.approx(0.0, abs=1e-12)
    assert wilson_interval(5, 5)[1] == pytest.approx(1.0)
    with pytest.raises(ValueError, match="6 of 5"):
        wilson_interval(6, 5)


def test_bootstrap_is_seeded_and_near_the_normal_interval():
    values = np.tile([0.0, 1.0], 200)
    low, high = bootstrap_ci(values, rng=np.random.default_rng(0))
    assert (low, high) == bootstrap_ci(values, rng=np.random.default_rng(0))
    # 1.96 * 0.5 / sqrt(400) = 0.049
    np.testing.assert_allclose([low, high], [0.451, 0.549], atol=0.01)
    assert bootstrap_ci(np.ones(3), rng=np.random.default_rng(0)) == (1.0, 1.0)
    with pytest.raises(ValueError, match="no problem"):
        bootstrap_ci(np.zeros(0), rng=np.random.default_rng(0))


def test_pairing_sees_a_small_rise_that_two_intervals_hide():
    before = np.linspace(0.0, 0.9, 50)
    difference, low, high = paired_difference(
        before, before + 0.05, rng=np.random.default_rng(0)
    )
    np.testing.assert_allclose([difference, low, high], 0.05, rtol=1e-6)
    with pytest.raises(ValueError, match="equal problems"):
        paired_difference(before, before[:3], rng=np.random.default_rng(0))
