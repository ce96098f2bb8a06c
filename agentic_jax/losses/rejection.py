"""Corrections that keep or drop: factors of 0 or 1 for the loss weights.

Signature and contract are those of losses/correction.py; l = old - behavior.
"""

import jax
import jax.numpy as jnp

from agentic_jax.losses.correction import check_bounds, log_weight
from agentic_jax.losses.segments import (
    segment_max,
    segment_mean,
    segment_sum,
    to_tokens,
)
from agentic_jax.losses.shapes import at_least_float32, check_same_shape


def rejection_mask(
    old_logprobs: jax.Array,
    behavior_logprobs: jax.Array,
    mask: jax.Array,
    segment_ids: jax.Array,
    advantages: jax.Array,
    *,
    estimator: str,
    level: str,
    low: float,
    high: float,
) -> jax.Array:
    """1 where a divergence estimate of the token or trajectory is in [low, high].

        k1: -l    k2: l^2 / 2    k3: exp(l) - l - 1

    Args:
        old_logprobs: [B, T] trainer kernels, nats.
        behavior_logprobs: [B, T] the engine's, nats.
        mask: [B, T] bool, the policy sampled this token.
        segment_ids: [B, T] int32, which trajectory of the row.
        advantages: [B, T]; not used here.
        estimator: "k1", "k2" or "k3", per token.
        level: "token", or "sum", "mean" or "max" of the trajectory's sampled tokens.
        low: smallest value kept, nats; 0 or below for k2 and k3.
        high: largest value kept, nats.

    Returns:
        [B, T] factors 0 or 1.

    Raises:
        ValueError: unknown estimator or level, low not below high, or shapes differ.

    Source: verl's rollout rejection. It gives bounds of k1 as ratios: take their
    logarithms.
    """
    check_bounds(low, high)
    reductions = {"sum": segment_sum, "mean": segment_mean, "max": segment_max}
    if level != "token" and level not in reductions:
        raise ValueError(f"level is {level!r}; it is token, {', '.join(reductions)}")
    ratios = log_weight(old_logprobs, behavior_logprobs, mask)
    estimates = {
        "k1": -ratios,
        "k2": 0.5 * jnp.square(ratios),
        "k3": jnp.exp(ratios) - ratios - 1.0,
    }
    if estimator not in estimates:
        raise ValueError(f"estimator is {estimator!r}; it is {', '.join(estimates)}")
    value = estimates[estimator]
    if level != "token":
        reduced = reductions[level](value, mask, segment_ids)
        value = to_tokens(reduced, segment_ids)
    kept = mask & (value >= low) & (value <= high)
    return kept.astype(ratios.dtype)


def geometric_mask(
    old_logprobs: jax.Array,
    behavior_logprobs: jax.Array,
    mask: jax.Array,
    segment_ids: jax.Array,
    advantages: jax.Array,
    *,
    low: float,
    high: float,
) -> jax.Array:
    """1 in trajectories whose geometric mean weight lies in [low, high], else 0.

    Args:
        old_logprobs: [B, T] trainer kernels, nats.
        behavior_logprobs: [B, T] the engine's, nats.
        mask: [B, T] bool, the policy sampled this token.
        segment_ids: [B, T] int32, which trajectory of the row.
        advantages: [B, T]; not used here.
        low: smallest exp(mean l) kept, above 0; 0.999 is usual.
        high: largest one kept; 1.001 is usual.

    Returns:
        [B, T] factors 0 or 1.

    Raises:
        ValueError: low is not below high, or shapes differ.

    Source: verl's geometric rejection (seq_mean_k1).
    """
    check_bounds(low, high)
    weights = log_weight(old_logprobs, behavior_logprobs, mask)
    mean = to_tokens(segment_mean(weights, mask, segment_ids), segment_ids)
    kept = (mean >= jnp.log(low)) & (mean <= jnp.log(high))
    return jnp.where(mask & kept, 1.0, 0.0).astype(weights.dtype)


def off_policy_mask(
    old_logprobs: jax.Array,
    behavior_logprobs: jax.Array,
    mask: jax.Array,
    segment_ids: jax.Array,
    advantages: jax.Array,
    *,
    delta: float,
) -> jax.Array:
    """0 in bad trajectories that the trainer finds much less likely than the engine.

        dropped where A < 0 and mean_t (behavior_t - old_t) > delta

    Args:
        old_logprobs: [B, T] trainer kernels, nats.
        behavior_logprobs: [B, T] the engine's, nats.
        mask: [B, T] bool, the policy sampled this token.
        segment_ids: [B, T] int32, which trajectory of the row.
        advantages: [B, T]; the trajectory's is their mean over its sampled tokens.
        delta: nats per token, at least 0.

    Returns:
        [B, T] factors 0 or 1.

    Raises:
        ValueError: shapes differ.

    Source: OPSM, off-policy sequence masking (DeepSeek-V3.2, arXiv:2512.02556).
    """
    check_same_shape(old_logprobs=old_logprobs, advantages=advantages)
    weights = log_weight(old_logprobs, behavior_logprobs, mask)
    drift = segment_mean(-weights, mask, segment_ids)
    advantage = segment_mean(at_least_float32(advantages), mask, segment_ids)
    dropped = to_tokens((advantage < 0) & (drift > delta), segment_ids)
    return jnp.where(mask & ~dropped, 1.0, 0.0).astype(weights.dtype)


def probability_mask(
    old_logprobs: jax.Array,
    behavior_logprobs: jax.Array,
    mask: jax.Array,
    segment_ids: jax.Array,
    advantages: jax.Array,
    *,
    max_difference: float,
) -> jax.Array:
    """0 at tokens whose probability differs by more than max_difference, else 1.

    Args:
        old_logprobs: [B, T] trainer kernels, nats.
        behavior_logprobs: [B, T] the engine's, nats.
        mask: [B, T] bool, the policy sampled this token.
        segment_ids: [B, T] int32; not used here.
        advantages: [B, T]; not used here.
        max_difference: largest |p_trainer - p_engine| kept, in [0, 1].

    Returns:
        [B, T] factors 0 or 1.

    Raises:
        ValueError: shapes differ.

    Source: the token mask of prime-rl's IPO loss.
    """
    check_same_shape(old_logprobs=old_logprobs, behavior_logprobs=behavior_logprobs)
    trainer = jnp.exp(jnp.where(mask, at_least_float32(old_logprobs), 0.0))
    engine = jnp.exp(jnp.where(mask, at_least_float32(behavior_logprobs), 0.0))
    kept = mask & (jnp.abs(trainer - engine) <= max_difference)
    return jax.lax.stop_gradient(kept.astype(trainer.dtype))
