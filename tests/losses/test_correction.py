import jax
import numpy as np
import pytest

from agentic_jax.losses import CORRECTIONS
from agentic_jax.losses.correction import mismatch_report, normalize_weights

# Trainer -1 and engine -3 give a weight of exp(2) = 7.389.
MASK = np.array([[True, True, True, True, False, False]])
IDS = np.array([[1, 1, 2, 2, 2, 0]], np.int32)
LOG_WEIGHTS = np.array([[2.0, 0.0, -0.1, 0.3, 9.0, np.nan]], np.float32)
OLD = np.array([[-1.0, -1.0, -2.0, -1.0, -1.0, np.nan]], np.float32)
ENGINE = OLD - LOG_WEIGHTS
ADVANTAGES = np.array([[1.0, 1.0, -1.0, -1.0, 0.0, 0.0]], np.float32)
W = np.exp([2.0, 0.0, -0.1, 0.3])


def factors(name, old=OLD, **options):
    correction = CORRECTIONS[name]
    found = jax.jit(lambda o: correction(o, ENGINE, MASK, IDS, ADVANTAGES, **options))
    result = np.asarray(found(old))
    np.testing.assert_array_equal(result[0, 4:], 0.0)
    return result[0, :4]


@pytest.mark.parametrize(
    "name, options, expected",
    [
        ("none", {}, [1, 1, 1, 1]),
        ("tis", {"cap": 2.0}, [2, 1, W[2], W[3]]),
        ("tis_sequence", {"cap": 2.0}, [2, 2, np.exp(0.2), np.exp(0.2)]),
        ("mis", {"low": 0.95, "high": 2.0}, [0, 1, 0, W[3]]),
        ("icepop", {"low": 0.5, "high": 5.0}, [0, 1, W[2], W[3]]),
        ("mis_sequence", {"low": 0.5, "high": 2.0}, [0, 0, np.exp(0.2), np.exp(0.2)]),
        ("geometric_mask", {"low": 0.9, "high": 1.2}, [0, 0, 1, 1]),
        # Means of engine - trainer: -1 (good) and -0.1 (bad).
        ("opsm", {"delta": -0.2}, [1, 1, 0, 0]),
        ("opsm", {"delta": 0.0}, [1, 1, 1, 1]),
        # p: e^-1 against e^-3, equal, e^-2 against e^-1.9, e^-1 against e^-1.3.
        ("probability_mask", {"max_difference": 0.05}, [0, 1, 1, 0]),
    ],
)
def test_matches_hand_worked_factors(name, options, expected):
    np.testing.assert_allclose(factors(name, **options), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "estimator, level, low, high, expected",
    [
        ("k1", "token", -0.2, 0.2, [0, 1, 1, 0]),  # -l: -2, 0, 0.1, -0.3
        ("k2", "token", 0.0, 0.01, [0, 1, 1, 0]),  # 2, 0, 0.005, 0.045
        ("k3", "token", 0.0, 0.04, [0, 1, 1, 0]),  # 4.4, 0, 0.0048, 0.0499
        ("k1", "sum", -0.3, 0.3, [0, 0, 1, 1]),  # -2, -0.2
        ("k1", "mean", -1.1, -0.5, [1, 1, 0, 0]),  # -1, -0.1
        ("k2", "max", 0.0, 0.05, [0, 0, 1, 1]),  # 2, 0.045
        ("k2", "max", 0.0, 0.04, [0, 0, 0, 0]),
    ],
)
def test_rejection_by_statistic(estimator, level, low, high, expected):
    options = {"estimator": estimator, "level": level, "low": low, "high": high}
    np.testing.assert_array_equal(factors("rejection_mask", **options), expected)


def test_corrections_carry_no_gradient():
    clean = np.where(MASK, OLD, 0.0)
    engine = np.where(MASK, ENGINE, 0.0)
    for name, options in (
        ("tis", {"cap": 9.0}),
        ("tis_sequence", {"cap": 9.0}),
        ("mis", {"low": 0.1, "high": 9.0}),
        ("probability_mask", {"max_difference": 0.5}),
    ):
        correction = CORRECTIONS[name]
        grad = jax.grad(
            lambda x, c=correction, o=options: c(
                x, engine, MASK, IDS, ADVANTAGES, **o
            ).sum()
        )(clean)
        np.testing.assert_array_equal(grad, np.zeros_like(grad))


def test_self_normalised_factors_have_mean_one_over_the_mask():
    found = normalize_weights(np.array([[2.0, 1.0, 1.0, 0.0, 9.0, 9.0]]), MASK)
    np.testing.assert_allclose(found, [[2, 1, 1, 0, 0, 0]])
    np.testing.assert_array_equal(normalize_weights(0.0 * found, MASK), 0.0 * found)


def test_mismatch_report_sees_sampled_tokens_only():
    options = {"low": 0.5, "high": 2.0, "alarm": 0.1}
    found = jax.jit(lambda *a: mismatch_report(*a, **options))(OLD, ENGINE, MASK)
    # |l|: 2, 0, 0.1, 0.3; k3: e^2 - 3, 0, 0.00484, 0.04986.
    expected = {"mean": 0.6, "max": 2.0, "fraction": 0.25, "alarm": 1.0}
    for name, value in expected.items():
        np.testing.assert_allclose(found[f"policy/mismatch_{name}"], value, rtol=1e-5)
    kl = (W - np.log(W) - 1).sum() / 4
    np.testing.assert_allclose(found["policy/mismatch_kl"], kl, rtol=1e-5)
    nothing = mismatch_report(OLD, ENGINE, MASK & False, **options)
    assert all(x == 0 for x in nothing.values())


def test_rejects_bounds_that_are_swapped_and_unknown_words():
    with pytest.raises(ValueError, match="low is 2.0 and high is 0.5"):
        factors("mis", low=2.0, high=0.5)
    with pytest.raises(ValueError, match="level is 'row'"):
        factors("rejection_mask", estimator="k1", level="row", low=0.0, high=1.0)
    with pytest.raises(ValueError, match="estimator is 'k4'"):
        factors("rejection_mask", estimator="k4", level="sum", low=0.0, high=1.0)
