import jax
import numpy as np
import pytest

from agentic_jax.batch import Targets
from agentic_jax.config import bind
from agentic_jax.losses import KLS, LOG_RATIOS, SURROGATES
from agentic_jax.losses.policy import mean_metrics, policy_loss

MASK = np.array([[False, True, True, True]])
IDS = np.ones((1, 4), np.int32)
# Ratios 1, 2 and 1/2, advantages 1, 1 and -1, weights 1/4, 1/4, 1/2.
NOW = np.array([[-9.0, -1.0, -1.0, -2.0]], np.float32)
OLD = NOW - np.log(np.array([[1.0, 1.0, 2.0, 0.5]], np.float32))
ADVANTAGES = np.array([[7.0, 1.0, 1.0, -1.0]], np.float32)
WEIGHTS = np.array([[3.0, 0.25, 0.25, 0.5]], np.float32)
SLOTS = {
    "log_ratio": LOG_RATIOS["token"],
    "surrogate": bind(
        {"name": "clipped", "eps_low": 0.2, "eps_high": 0.28}, SURROGATES
    ),
}


def run(now=NOW, *, kl="none", kl_coef=0.0, ref=None, entropy_coef=0.0, **changes):
    fields = {
        "mask": MASK,
        "segment_ids": IDS,
        "old_logprobs": OLD,
        "advantages": ADVANTAGES,
        "weights": WEIGHTS,
        "ref_logprobs": ref,
    }
    targets = Targets(**fields | changes)
    entropy = np.array([[9.0, 1.0, 2.0, 3.0]], np.float32)

    def loss(x):
        return policy_loss(
            x,
            targets,
            kl=KLS[kl],
            kl_coef=kl_coef,
            entropy=entropy,
            entropy_coef=entropy_coef,
            **SLOTS,
        )

    (value, metrics), grad = jax.jit(jax.value_and_grad(loss, has_aux=True))(now)
    return float(value), grad[0], mean_metrics(metrics)


def test_loss_is_the_weighted_sum_over_sampled_tokens():
    value, grad, _ = run()
    # -1/4 - 1.28/4 + 0.8/2, and only the first token is not clipped.
    np.testing.assert_allclose(value, -0.25 - 0.32 + 0.4, rtol=1e-6)
    np.testing.assert_allclose(grad, [0, -0.25, 0, 0], rtol=1e-6)


def test_kl_and_entropy_enter_with_their_coefficients():
    ref = NOW - 1.0  # d = -1: k3 = exp(-1), slope 1 - exp(-1).
    value, grad, _ = run(kl="k3", kl_coef=0.1, ref=ref, entropy_coef=0.01)
    bonus = 0.01 * (0.25 * 1 + 0.25 * 2 + 0.5 * 3)
    np.testing.assert_allclose(value, -0.17 + 0.1 * np.exp(-1) - bonus, rtol=1e-5)
    slope = 0.1 * (1 - np.exp(-1))
    np.testing.assert_allclose(grad[2:], [slope / 4, slope / 2], rtol=1e-5)


def test_metrics_are_means_over_sampled_tokens():
    _, _, metrics = run()
    np.testing.assert_allclose(metrics["policy/tokens"], 3)
    np.testing.assert_allclose(metrics["policy/ratio"], 3.5 / 3, rtol=1e-6)
    np.testing.assert_allclose(metrics["policy/step_kl"], 0.0, atol=1e-6)
    np.testing.assert_allclose(metrics["policy/entropy"], 2.0, rtol=1e-6)
    np.testing.assert_allclose(metrics["policy/clipped_high"], 1 / 3, rtol=1e-6)
    np.testing.assert_allclose(metrics["policy/clipped_low"], 1 / 3, rtol=1e-6)
    _, _, metrics = run(advantages=np.abs(ADVANTAGES))  # A good token lowered: free.
    np.testing.assert_allclose(metrics["policy/clipped_high"], 1 / 3, rtol=1e-6)
    assert metrics["policy/clipped_low"] == 0


def test_masked_nan_and_inf_change_neither_value_nor_gradient():
    def spoil(x):
        return np.where(MASK, x, np.array([[np.nan]], np.float32))

    value, grad, metrics = run(
        spoil(NOW),
        kl="k3",
        kl_coef=0.1,
        ref=np.where(MASK, NOW, -np.inf).astype(np.float32),
        old_logprobs=spoil(OLD),
        advantages=spoil(ADVANTAGES),
        weights=spoil(WEIGHTS),
    )
    np.testing.assert_allclose(value, -0.17, rtol=1e-5)
    np.testing.assert_allclose(grad, [0, -0.25, 0, 0], rtol=1e-6)
    assert all(np.isfinite(x) for x in metrics.values())


def test_nothing_sampled_gives_zero_loss_and_finite_metrics():
    value, grad, metrics = run(mask=MASK & False)
    assert value == 0 and not grad.any()
    assert all(x == 0 for x in metrics.values())


def test_on_policy_gradient_is_minus_weight_times_advantage():
    _, grad, _ = run(old_logprobs=NOW)
    np.testing.assert_allclose(grad, [0, -0.25, -0.25, 0.5], rtol=1e-6)


def test_rejects_a_bonus_without_entropy():
    targets = Targets(MASK, IDS, OLD, ADVANTAGES, WEIGHTS)
    with pytest.raises(ValueError, match="entropy_coef is 0.1"):
        policy_loss(
            NOW, targets, kl=KLS["none"], kl_coef=0.0, entropy_coef=0.1, **SLOTS
        )
