import jax
import numpy as np
import pytest

from agentic_jax.losses.ratios import (
    geometric_log_ratio,
    sequence_log_ratio,
    sequence_token_log_ratio,
    token_log_ratio,
)

# Two trajectories and padding in one row; tokens 1 and 5 are not the policy's.
MASK = np.array([[True, False, True, True, True, False, False]])
IDS = np.array([[1, 1, 1, 2, 2, 2, 0]], np.int32)
DIFF = np.array([[0.2, np.nan, 0.4, -0.1, 0.3, np.inf, -np.inf]], np.float32)
OLD = np.array([[-1.0, np.nan, -2.0, -1.0, -3.0, np.inf, 0.0]], np.float32)
NOW = OLD + DIFF
ADVANTAGES = np.array([[1.0, 0.0, 1.0, -1.0, -1.0, 0.0, 0.0]], np.float32)


def value_and_jacobian(function, now=NOW, **options):
    def ratio(x):
        return function(x, OLD, MASK, IDS, ADVANTAGES, **options)[0]

    return jax.jit(ratio)(now), jax.jit(jax.jacrev(ratio))(now)[:, 0]


def test_token_ratio_is_the_difference_of_sampled_tokens_only():
    value, jacobian = value_and_jacobian(token_log_ratio)
    np.testing.assert_allclose(value, [0.2, 0, 0.4, -0.1, 0.3, 0, 0], atol=1e-6)
    np.testing.assert_array_equal(jacobian, np.diag(MASK[0].astype(float)))


def test_token_ratio_is_clamped_without_gradient_beyond():
    far = OLD + np.array([[50.0, 0, -50.0, 1.0, 0, 0, 0]], np.float32)
    value, jacobian = value_and_jacobian(token_log_ratio, far)
    np.testing.assert_allclose(value[:4], [20.0, 0.0, -20.0, 1.0], atol=1e-5)
    np.testing.assert_array_equal(np.diag(jacobian)[:4], [0, 0, 0, 1])


def test_sequence_ratio_is_the_mean_over_sampled_tokens_of_the_trajectory():
    value, jacobian = value_and_jacobian(sequence_log_ratio)
    # (0.2 + 0.4) / 2 and (-0.1 + 0.3) / 2
    np.testing.assert_allclose(value, [0.3, 0, 0.3, 0.1, 0.1, 0, 0], atol=1e-6)
    np.testing.assert_allclose(jacobian[0], [0.5, 0, 0.5, 0, 0, 0, 0])
    np.testing.assert_allclose(jacobian[3], [0, 0, 0, 0.5, 0.5, 0, 0])


def test_token_form_has_the_value_of_the_sequence_and_the_gradient_of_the_token():
    value, jacobian = value_and_jacobian(sequence_token_log_ratio)
    np.testing.assert_allclose(value, [0.3, 0, 0.3, 0.1, 0.1, 0, 0], atol=1e-6)
    np.testing.assert_array_equal(jacobian, np.diag(MASK[0].astype(float)))


@pytest.mark.parametrize("function", [sequence_log_ratio, sequence_token_log_ratio])
def test_sequence_ratios_are_capped_from_above_only(function):
    far = OLD + np.array([[50.0, 0, 50.0, -50.0, -50.0, 0, 0]], np.float32)
    value, jacobian = value_and_jacobian(function, far)
    np.testing.assert_allclose([value[0], value[3]], [10.0, -50.0], rtol=1e-6)
    assert not jacobian[0].any() and jacobian[3].any()


def test_geometric_ratio_clips_each_token_on_the_side_of_its_advantage():
    value, jacobian = value_and_jacobian(
        geometric_log_ratio, eps_low=0.05, eps_high=0.3
    )
    # Good: min(0.2, 0.3) and min(0.4, 0.3); bad: max(-0.1, -0.05) and max(0.3, -0.05).
    expected = [0.25, 0, 0.25, 0.125, 0.125, 0, 0]
    np.testing.assert_allclose(value, expected, atol=1e-6)
    np.testing.assert_allclose(jacobian[0], [0.5, 0, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(jacobian[3], [0, 0, 0, 0, 0.5, 0, 0])


def test_rejects_unequal_shapes():
    with pytest.raises(ValueError, match=r"old_logprobs \(2, 3\)"):
        zeros = np.zeros((1, 3))
        token_log_ratio(zeros, np.zeros((2, 3)), zeros > 0, zeros, zeros)
