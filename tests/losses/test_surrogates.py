import jax
import numpy as np
import pytest

from agentic_jax.losses.surrogates import (
    cispo_surrogate,
    reinforce_surrogate,
    sapo_surrogate,
    unclipped_surrogate,
)

LOG_RATIO = np.log(np.array([[1.0, 2.0, 0.5, 2.0]], np.float32))
ADVANTAGES = np.array([[1.0, 1.0, -1.0, -1.0]], np.float32)


def value_and_grad(function, **options):
    def total(x):
        loss = function(x, ADVANTAGES, **options)
        return loss.sum(), loss

    (_, loss), grad = jax.jit(jax.value_and_grad(total, has_aux=True))(LOG_RATIO)
    return loss[0], grad[0]


def test_unclipped_is_minus_ratio_times_advantage():
    loss, grad = value_and_grad(unclipped_surrogate)
    np.testing.assert_allclose(loss, [-1.0, -2.0, 0.5, 2.0], rtol=1e-6)
    np.testing.assert_allclose(grad, loss, rtol=1e-6)


def test_reinforce_has_the_gradient_of_minus_advantage_times_logprob():
    loss, grad = value_and_grad(reinforce_surrogate)
    np.testing.assert_allclose(grad, -ADVANTAGES[0], rtol=1e-6)
    np.testing.assert_allclose(loss, -ADVANTAGES[0] * LOG_RATIO[0], rtol=1e-6)


def test_cispo_keeps_a_gradient_where_the_clip_binds():
    loss, grad = value_and_grad(cispo_surrogate, eps_low=0.2, eps_high=0.28)
    # Weights 1, 1.28, 0.8, 1.28, whatever the sign of the advantage.
    weights = np.array([1.0, 1.28, 0.8, 1.28])
    np.testing.assert_allclose(grad, -weights * ADVANTAGES[0], rtol=1e-6)
    np.testing.assert_allclose(loss, -weights * ADVANTAGES[0] * LOG_RATIO[0], rtol=1e-6)


def test_cispo_weight_carries_no_gradient_inside_the_clip_range():
    log_ratio = np.log(np.array([[1.1]], np.float32))
    options = {"eps_low": 0.2, "eps_high": 0.28}
    grad = jax.grad(
        lambda x: cispo_surrogate(x, np.ones((1, 1), np.float32), **options).sum()
    )(log_ratio)
    np.testing.assert_allclose(grad, [[-1.1]], rtol=1e-6)


def test_sapo_gate_is_flat_far_away_and_plain_on_policy():
    loss, grad = value_and_grad(sapo_surrogate, tau_pos=1.0, tau_neg=2.0)

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    expected = [
        -4 * 0.5,
        -4 * sigmoid(1.0),
        2 * sigmoid(2.0 * -0.5),
        2 * sigmoid(2.0 * 1.0),
    ]
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    # d loss / d log r = -A 4 s (1 - s) r: on policy -1.
    np.testing.assert_allclose(grad[0], -1.0, rtol=1e-6)
    s = sigmoid(1.0)
    np.testing.assert_allclose(grad[1], -4 * s * (1 - s) * 2.0, rtol=1e-6)


@pytest.mark.parametrize("function", [unclipped_surrogate, reinforce_surrogate])
def test_rejects_unequal_shapes(function):
    with pytest.raises(ValueError, match="shapes must be equal"):
        function(LOG_RATIO, ADVANTAGES[0])
