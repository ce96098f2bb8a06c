"""Clipped surrogate objectives, one value per token.

All surrogates take (log_ratio, advantages), each [B, T]. Log ratios come from
losses/ratios.py, bounded and 0 in masked places.
"""

import jax
import jax.numpy as jnp

from agentic_jax.losses.shapes import at_least_float32, check_same_shape


def clipped_surrogate(
    log_ratio: jax.Array,
    advantages: jax.Array,
    *,
    eps_low: float,
    eps_high: float,
) -> jax.Array:
    """PPO surrogate loss with separate lower and upper clip ranges.

        loss_t = -min(r_t A_t, clip(r_t, 1 - eps_low, 1 + eps_high) A_t)

    Args:
        log_ratio: [B, T] log pi(y_t) - log pi_old(y_t), in nats.
        advantages: [B, T]; no gradient flows through them.
        eps_low: how far below 1 the ratio counts; in [0, 1).
        eps_high: how far above 1 it counts. "Clip higher" is eps_high > eps_low. A
            traced scalar works too: see losses/schedules.py.

    Returns:
        [B, T] loss per token, unmasked and unreduced; at least float32.

    Raises:
        ValueError: the two shapes differ, so that nothing broadcasts by accident.

    Source: DAPO (arXiv:2503.14476), Clip-Higher; equal ranges give PPO
    (arXiv:1707.06347, eq. 7).
    """
    ratio, advantages = _ratio_and_advantages(log_ratio, advantages)
    clipped = jnp.clip(ratio, 1.0 - eps_low, 1.0 + eps_high)
    return -jnp.minimum(ratio * advantages, clipped * advantages)


def dual_clipped_surrogate(
    log_ratio: jax.Array,
    advantages: jax.Array,
    *,
    eps_low: float,
    eps_high: float,
    cap: float,
) -> jax.Array:
    """Clipped surrogate that also bounds the loss of a bad token raised far.

        loss_t = min(clipped loss_t, -cap A_t)  where A_t < 0, else clipped loss_t

    Args:
        log_ratio: [B, T] in nats.
        advantages: [B, T]; no gradient flows through them.
        eps_low: how far below 1 the ratio counts; in [0, 1).
        eps_high: how far above 1 it counts.
        cap: largest ratio that a negative advantage is multiplied by; above
            1 + eps_high. 3 in verl, 10 in Open-AgentRL.

    Returns:
        [B, T] loss per token; at least float32.

    Raises:
        ValueError: shapes differ, or cap is not above 1.

    Source: dual-clip PPO (arXiv:1912.09729), eq. 5.
    """
    if cap <= 1.0:
        raise ValueError(
            f"cap is {cap}; it bounds the ratio from above and must be > 1"
        )
    loss = clipped_surrogate(log_ratio, advantages, eps_low=eps_low, eps_high=eps_high)
    return _dual_clip(loss, advantages, cap)


def gradient_keeping_surrogate(
    log_ratio: jax.Array,
    advantages: jax.Array,
    *,
    eps_low: float,
    eps_high: float,
    cap: float,
) -> jax.Array:
    """Dual-clipped surrogate whose upper clip bounds the value but keeps a gradient.

        clipped r_t = (1 + eps_high) / sg(r_t) * r_t  where r_t > 1 + eps_high

    A good token raised beyond the clip still gets the gradient -(1 + eps_high) A_t.

    Args and Returns: as dual_clipped_surrogate.

    Source: AEPO (arXiv:2510.14545), entropy-balanced clipping; the cap as in its code.
    """
    ratio, stopped = _ratio_and_advantages(log_ratio, advantages)
    upper = 1.0 + eps_high
    kept = upper * ratio / jax.lax.stop_gradient(ratio)
    clipped = jnp.where(ratio > upper, kept, jnp.maximum(ratio, 1.0 - eps_low))
    loss = -jnp.minimum(ratio * stopped, clipped * stopped)
    return _dual_clip(loss, advantages, cap)


def clip_fractions(
    log_ratio: jax.Array,
    advantages: jax.Array,
    mask: jax.Array,
    *,
    eps_low: float,
    eps_high: float,
) -> tuple[jax.Array, jax.Array]:
    """Fractions of the sampled tokens at which each clip bound holds the loss.

    Args:
        log_ratio: [B, T] in nats.
        advantages: [B, T].
        mask: [B, T] bool; tokens outside it are not counted.
        eps_low: how far below 1 the ratio counts.
        eps_high: how far above 1 it counts.

    Returns:
        lower [] and upper []: shares of bad tokens lowered beyond the lower bound and
        of good tokens raised beyond the upper one; 0 for an empty mask.
    """
    ratio, advantages = _ratio_and_advantages(log_ratio, advantages)
    low = mask & (ratio < 1.0 - eps_low) & (advantages < 0)
    high = mask & (ratio > 1.0 + eps_high) & (advantages > 0)
    count = jnp.maximum(jnp.sum(mask), 1)
    return jnp.sum(low) / count, jnp.sum(high) / count


def _ratio_and_advantages(
    log_ratio: jax.Array, advantages: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """exp(log_ratio), and the advantages without gradient, in one precision."""
    check_same_shape(log_ratio=log_ratio, advantages=advantages)
    advantages = jax.lax.stop_gradient(at_least_float32(advantages))
    return jnp.exp(at_least_float32(log_ratio)), advantages


def _dual_clip(loss: jax.Array, advantages: jax.Array, cap: float) -> jax.Array:
    """The loss, bounded by -cap * A where A < 0."""
    advantages = jax.lax.stop_gradient(at_least_float32(advantages))
    return jnp.where(advantages < 0, jnp.minimum(loss, -cap * advantages), loss)
