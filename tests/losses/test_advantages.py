import jax
import numpy as np
import pytest

from agentic_jax.losses.advantages import (
    center_group,
    leave_one_out,
    length_weighted_baseline,
    normalize_each_reward,
    normalize_group,
    scale_by_batch,
)

REWARDS = np.array([1.0, 0.0, 0.0, 0.0], np.float32)
ALL = np.ones(4, bool)


def test_one_right_of_four():
    # Mean 1/4; std with ddof 1 is 1/2, with ddof 0 sqrt(3)/4.
    np.testing.assert_allclose(
        normalize_group(REWARDS, ALL, eps=0.0), [1.5, -0.5, -0.5, -0.5], rtol=1e-6
    )
    np.testing.assert_allclose(
        normalize_group(REWARDS, ALL, eps=0.0, ddof=0)[:2],
        [3**0.5, -(3**-0.5)],
        rtol=1e-6,
    )
    np.testing.assert_allclose(center_group(REWARDS, ALL), [0.75] + [-0.25] * 3)
    np.testing.assert_allclose(
        leave_one_out(REWARDS, ALL), [1.0] + [-1 / 3] * 3, rtol=1e-6
    )


def test_eps_is_added_to_the_standard_deviation():
    found = normalize_group(REWARDS, ALL, eps=0.25)
    np.testing.assert_allclose(found[0], 0.75 / 0.75, rtol=1e-6)


def test_lengths_weigh_the_baseline():
    # (3 * 1 + 0) / 6 = 1/2
    lengths = np.array([3, 1, 1, 1])
    found = length_weighted_baseline(REWARDS, ALL, lengths)
    np.testing.assert_allclose(found, [0.5, -0.5, -0.5, -0.5], rtol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda r, v: normalize_group(r, v, eps=1e-6),
        center_group,
        leave_one_out,
        lambda r, v: length_weighted_baseline(r, v, np.arange(1, 1 + len(r))),
    ],
)
def test_equal_rewards_give_exactly_zero_and_faults_are_left_out(function):
    function = jax.jit(function)
    # 0.7 has no exact binary form, and the mean of nine rounds to another number.
    equal = function(np.full(9, 0.7, np.float32), np.ones(9, bool))
    np.testing.assert_array_equal(equal, [0.0] * 9)
    faulted = np.array([1.0, 0.0, np.nan, 5.0], np.float32)
    valid = np.array([True, True, False, False])
    found = function(faulted, valid)
    assert found[0] > 0 > found[1] and not found[2:].any()
    alone = function(faulted, np.array([True, False, False, False]))
    np.testing.assert_array_equal(alone, [0.0] * 4)


def test_the_mean_is_over_valid_members():
    rewards = np.array([1.0, 0.0, np.nan, 5.0], np.float32)
    valid = np.array([True, True, False, False])
    np.testing.assert_allclose(center_group(rewards, valid), [0.5, -0.5, 0.0, 0.0])
    np.testing.assert_allclose(leave_one_out(rewards, valid), [1.0, -1.0, 0.0, 0.0])


def test_batch_scale_uses_the_spread_of_the_whole_step():
    rewards = np.array([[1.0, 0.0], [1.0, 1.0]], np.float32)
    found = scale_by_batch(rewards, np.ones((2, 2), bool), eps=0.0)
    # Std of 1, 0, 1, 1 with ddof 1 is 1/2.
    np.testing.assert_allclose(found, [[1.0, -1.0], [0.0, 0.0]], rtol=1e-6)


def test_each_reward_is_normalised_by_itself():
    parts = np.array([[1.0, 0.0], [0.0, 100.0]], np.float32)
    found = normalize_each_reward(parts, np.ones(2, bool), weights=(1.0, 0.5), eps=0.0)
    # Each is +-1/sqrt 2: 1 - 0.5 = 0.5 of it is left.
    np.testing.assert_allclose(found, [0.5 / 2**0.5, -0.5 / 2**0.5], rtol=1e-6)
    with pytest.raises(ValueError, match="1 weights for 2 rewards"):
        normalize_each_reward(parts, np.ones(2, bool), weights=(1.0,), eps=0.0)


def test_advantages_carry_no_gradient_and_reject_unequal_shapes():
    grad = jax.grad(lambda r: normalize_group(r, ALL, eps=1e-6)[0])(REWARDS)
    np.testing.assert_array_equal(grad, [0.0] * 4)
    with pytest.raises(ValueError, match=r"valid \(3,\)"):
        center_group(REWARDS, ALL[:3])
