import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentic_jax.losses.clipping import (
    clip_fractions,
    clipped_surrogate,
    dual_clipped_surrogate,
    gradient_keeping_surrogate,
)

EPS = {"eps_low": 0.2, "eps_high": 0.28}
surrogate = jax.jit(clipped_surrogate, static_argnames=EPS)
dual = jax.jit(dual_clipped_surrogate, static_argnames=(*EPS, "cap"))
keeping = jax.jit(gradient_keeping_surrogate, static_argnames=(*EPS, "cap"))


@pytest.mark.parametrize(
    "ratio, advantage, expected",
    [
        (1.0, 2.0, -2.0),  # on policy
        (1.5, 1.0, -1.28),  # good token raised too far: the upper clip binds
        (1.3, 1.0, -1.28),
        (1.3, -1.0, 1.3),  # bad token raised: never clipped
        (0.5, 1.0, -0.5),  # good token lowered: never clipped
        (0.5, -1.0, 0.8),  # bad token lowered too far: the lower clip binds
        (1.5, -1.0, 1.5),
    ],
)
def test_clipped_matches_hand_worked_values(ratio, advantage, expected):
    loss = surrogate(np.log([[ratio]]), np.array([[advantage]]), **EPS)
    np.testing.assert_allclose(loss, [[expected]], rtol=1e-6)


def test_gradient_vanishes_exactly_where_the_clip_binds():
    log_ratio = np.log([[1.0, 1.5, 0.5, 0.5, 1.5]])
    advantages = np.array([[1.0, 1.0, 1.0, -1.0, -1.0]])
    grad = jax.jit(jax.grad(lambda x: surrogate(x, advantages, **EPS).sum()))
    np.testing.assert_allclose(
        grad(log_ratio), [[-1.0, 0.0, -0.5, 0.0, 1.5]], rtol=1e-6
    )


@pytest.mark.parametrize(
    "ratio, advantage, expected, slope",
    [
        (5.0, -2.0, 6.0, 0.0),  # 5 * 2 = 10 is held at 3 * 2
        (2.0, -2.0, 4.0, 4.0),  # below the cap: as clipped
        (5.0, 2.0, -2.56, 0.0),  # the cap is for bad tokens only
    ],
)
def test_dual_clip_bounds_the_loss_of_bad_tokens(ratio, advantage, expected, slope):
    advantages = np.array([[advantage]], np.float32)
    value, grad = jax.jit(
        jax.value_and_grad(lambda x: dual(x, advantages, cap=3.0, **EPS).sum())
    )(np.log(np.array([[ratio]], np.float32)))
    np.testing.assert_allclose([value, grad[0, 0]], [expected, slope], rtol=1e-6)


def test_gradient_keeping_clip_has_the_value_of_ppo_and_the_slope_of_the_bound():
    log_ratio = np.log(np.array([[1.5, 1.1, 0.5, 5.0]], np.float32))
    advantages = np.array([[2.0, 2.0, -1.0, -1.0]], np.float32)
    value, grad = jax.jit(
        jax.value_and_grad(lambda x: keeping(x, advantages, cap=3.0, **EPS).sum())
    )(log_ratio)
    # Values -1.28 * 2, -1.1 * 2, 0.8 and 3; slopes -1.28 * 2, -2.2, 0 and 0.
    np.testing.assert_allclose(value, -2.56 - 2.2 + 0.8 + 3.0, rtol=1e-6)
    np.testing.assert_allclose(grad, [[-2.56, -2.2, 0.0, 0.0]], rtol=1e-6)


def test_no_gradient_flows_through_advantages():
    zeros = jnp.zeros((1, 2))
    for function, options in (
        (clipped_surrogate, EPS),
        (dual_clipped_surrogate, {**EPS, "cap": 3.0}),
        (gradient_keeping_surrogate, {**EPS, "cap": 3.0}),
    ):
        grad = jax.grad(lambda a, f=function, o=options: f(zeros, a, **o).sum())
        np.testing.assert_array_equal(grad(-jnp.ones((1, 2))), [[0.0, 0.0]])


def test_clip_fractions_count_sampled_tokens_on_the_binding_side_only():
    log_ratio = np.log([[1.5, 1.5, 0.5, 0.5, 0.5]])
    advantages = np.array([[1.0, -1.0, -1.0, 1.0, -1.0]])
    mask = np.array([[True, True, True, True, False]])
    low, high = clip_fractions(log_ratio, advantages, mask, **EPS)
    np.testing.assert_allclose([low, high], [0.25, 0.25])


def test_rejects_one_advantage_per_trajectory_and_a_cap_below_one():
    with pytest.raises(ValueError, match=r"advantages \(2,\)"):
        surrogate(jnp.zeros((2, 3)), jnp.zeros(2), **EPS)
    with pytest.raises(ValueError, match="cap is 0.5"):
        dual(jnp.zeros((1, 1)), jnp.zeros((1, 1)), cap=0.5, **EPS)
