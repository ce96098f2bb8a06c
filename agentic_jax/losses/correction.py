"""Correction for the gap between the engine that sampled and the trainer that learns.

All functions take (old_logprobs, behavior_logprobs, mask, segment_ids, advantages),
each [B, T], and return factors [B, T] for the loss weights: 0 where mask is False, no
gradient, in at least float32. With l = old - behavior and w = exp(l), w is the
importance weight of the trainer's policy over the engine's. Only sampled tokens enter a
mean, a sum or a maximum. Dropped tokens stay in the denominators of the aggregation.
"""

import jax
import jax.numpy as jnp

from agentic_jax.losses.segments import segment_sum, to_tokens
from agentic_jax.losses.shapes import at_least_float32, check_same_shape


def no_correction(
    old_logprobs: jax.Array,
    behavior_logprobs: jax.Array,
    mask: jax.Array,
    segment_ids: jax.Array,
    advantages: jax.Array,
) -> jax.Array:
    """1 at every sampled token, [B, T]."""
    return mask.astype(at_least_float32(old_logprobs).dtype)


def truncated_importance(
    old_logprobs: jax.Array,
    behavior_logprobs: jax.Array,
    mask: jax.Array,
    segment_ids: jax.Array,
    advantages: jax.Array,
    *,
    cap: float,
) -> jax.Array:
    """Importance weight of each token, truncated: min(w_t, cap).

    Args:
        old_logprobs: [B, T] trainer kernels, nats.
        behavior_logprobs: [B, T] the engine's, nats.
        mask: [B, T] bool, the policy sampled this token.
        segment_ids: [B, T] int32; not used here.
        advantages: [B, T]; not used here.
        cap: largest weight, above 0; 2 in verl, 3 in TRL.

    Returns:
        [B, T] factors in [0, cap].

    Raises:
        ValueError: shapes differ.

    Source: TIS (Yao et al. 2025, "Your efficient RL framework secretly brings you
    off-policy RL training").
    """
    weight = jnp.exp(log_weight(old_logprobs, behavior_logprobs, mask))
    return jnp.where(mask, jnp.minimum(weight, cap), 0.0)


def truncated_sequence_importance(
    old_logprobs: jax.Array,
    behavior_logprobs: jax.Array,
    mask: jax.Array,
    segment_ids: jax.Array,
    advantages: jax.Array,
    *,
    cap: float,
) -> jax.Array:
    """Importance weight of the whole trajectory, truncated: min(prod_t w_t, cap).

    Args and Returns: as truncated_importance; tokens of a trajectory share one factor.
    The log weight of a trajectory is bounded to +-20.

    Source: verl's sequence-level TIS.
    """
    weight = _sequence_weight(old_logprobs, behavior_logprobs, mask, segment_ids)
    return jnp.where(mask, jnp.minimum(weight, cap), 0.0)


def masked_importance(
    old_logprobs: jax.Array,
    behavior_logprobs: jax.Array,
    mask: jax.Array,
    segment_ids: jax.Array,
    advantages: jax.Array,
    *,
    low: float,
    high: float,
) -> jax.Array:
    """Importance weight of each token inside [low, high], 0 outside.

    Args:
        old_logprobs: [B, T] trainer kernels, nats.
        behavior_logprobs: [B, T] the engine's, nats.
        mask: [B, T] bool, the policy sampled this token.
        segment_ids: [B, T] int32; not used here.
        advantages: [B, T]; not used here.
        low: smallest weight kept, included.
        high: largest weight kept, included.

    Returns:
        [B, T] factors, 0 or in [low, high].

    Raises:
        ValueError: low is not below high, or shapes differ.

    Source: MIS; with [0.5, 5] IcePop (Ring-1T, arXiv:2510.18855).
    """
    check_bounds(low, high)
    weight = jnp.exp(log_weight(old_logprobs, behavior_logprobs, mask))
    return jnp.where(mask & (weight >= low) & (weight <= high), weight, 0.0)


def masked_sequence_importance(
    old_logprobs: jax.Array,
    behavior_logprobs: jax.Array,
    mask: jax.Array,
    segment_ids: jax.Array,
    advantages: jax.Array,
    *,
    low: float,
    high: float,
) -> jax.Array:
    """Importance weight of the whole trajectory inside [low, high], 0 outside.

    Args, Returns and Raises: as masked_importance; tokens of a trajectory share one
    factor. The log weight of a trajectory is bounded to +-20.

    Source: sequence-level MIS (Liu et al. 2025, "When speed kills stability").
    """
    check_bounds(low, high)
    weight = _sequence_weight(old_logprobs, behavior_logprobs, mask, segment_ids)
    return jnp.where(mask & (weight >= low) & (weight <= high), weight, 0.0)


def normalize_weights(weights: jax.Array, mask: jax.Array) -> jax.Array:
    """Correction factors divided by their mean over the sampled tokens of the step.

    Args:
        weights: [B, T] factors of a correction.
        mask: [B, T] bool.

    Returns:
        [B, T] of mean 1 over the mask; all-zero factors stay 0.

    Source: verl's batch_normalize, self-normalised importance sampling.
    """
    kept = jnp.where(mask, weights, 0.0)
    mean = jnp.sum(kept) / jnp.maximum(jnp.sum(mask), 1)
    return jnp.where(mean > 0, kept / jnp.where(mean > 0, mean, 1.0), 0.0)


def mismatch_report(
    old_logprobs: jax.Array,
    behavior_logprobs: jax.Array,
    mask: jax.Array,
    *,
    low: float,
    high: float,
    alarm: float,
) -> dict[str, jax.Array]:
    """How far the trainer's log-probabilities are from the engine's.

    Args:
        old_logprobs: [B, T] trainer kernels, nats.
        behavior_logprobs: [B, T] the engine's, nats.
        mask: [B, T] bool; tool output and padding enter nothing.
        low: weights below it count as beyond the limits.
        high: weights above it do too.
        alarm: nats; mismatch_alarm is 1 where the KL per token exceeds it.

    Returns:
        Scalars []: mismatch_mean and mismatch_max of |l|, mismatch_kl (k3 of the
        engine's policy against the trainer's), mismatch_fraction beyond the limits,
        mismatch_alarm 0 or 1, all under "policy/"; 0 for an empty mask. The maximum is
        not bounded; a NaN shows.
    """
    check_same_shape(old_logprobs=old_logprobs, behavior_logprobs=behavior_logprobs)
    old = jnp.where(mask, at_least_float32(old_logprobs), 0.0)
    log_weights = old - jnp.where(mask, at_least_float32(behavior_logprobs), 0.0)
    bounded = jnp.clip(log_weights, -20.0, 20.0)
    weight = jnp.exp(bounded)
    count = jnp.maximum(jnp.sum(mask), 1)
    kl = jnp.sum(weight - bounded - 1.0) / count
    beyond = mask & ((weight < low) | (weight > high))
    report = {
        "policy/mismatch_mean": jnp.sum(jnp.abs(log_weights)) / count,
        "policy/mismatch_max": jnp.max(jnp.abs(log_weights)),
        "policy/mismatch_kl": kl,
        "policy/mismatch_fraction": jnp.sum(beyond) / count,
        "policy/mismatch_alarm": jnp.where(kl > alarm, 1.0, 0.0),
    }
    return jax.lax.stop_gradient(report)


def log_weight(
    old_logprobs: jax.Array, behavior_logprobs: jax.Array, mask: jax.Array
) -> jax.Array:
    """[B, T] old - behavior in [-20, 20], 0 where masked, no gradient."""
    check_same_shape(
        old_logprobs=old_logprobs, behavior_logprobs=behavior_logprobs, mask=mask
    )
    old = jnp.where(mask, at_least_float32(old_logprobs), 0.0)
    behavior = jnp.where(mask, at_least_float32(behavior_logprobs), 0.0)
    return jax.lax.stop_gradient(jnp.clip(old - behavior, -20.0, 20.0))


def _sequence_weight(
    old_logprobs: jax.Array,
    behavior_logprobs: jax.Array,
    mask: jax.Array,
    segment_ids: jax.Array,
) -> jax.Array:
    """[B, T] product of the token weights of the trajectory, its log within +-20."""
    log_weights = log_weight(old_logprobs, behavior_logprobs, mask)
    total = segment_sum(log_weights, mask, segment_ids)
    return jnp.exp(to_tokens(jnp.clip(total, -20.0, 20.0), segment_ids))


def check_bounds(low: float, high: float) -> None:
    """Raises ValueError unless low < high."""
    if not low < high:
        raise ValueError(f"low is {low} and high is {high}; low must be below high")
