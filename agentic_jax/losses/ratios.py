"""Log importance ratios between the policy now and the policy being improved.

All functions take (logprobs, old_logprobs, mask, segment_ids, advantages), each [B, T],
and return the log ratio of each token, 0 where the mask is False. The clamp that keeps
exp() finite lives here, so no surrogate needs one.
"""

import jax
import jax.numpy as jnp

from agentic_jax.losses.segments import segment_mean, to_tokens
from agentic_jax.losses.shapes import at_least_float32, check_same_shape


def token_log_ratio(
    logprobs: jax.Array,
    old_logprobs: jax.Array,
    mask: jax.Array,
    segment_ids: jax.Array,
    advantages: jax.Array,
    *,
    max_abs: float = 20.0,
) -> jax.Array:
    """Log ratio of each token by itself.

        clip(logp_t - old_t, -max_abs, max_abs)

    Args:
        logprobs: [B, T] of the policy now, nats; the gradient flows here.
        old_logprobs: [B, T] of the policy being improved, nats.
        mask: [B, T] bool, the policy sampled this token.
        segment_ids: [B, T] int32; not used here.
        advantages: [B, T]; not used here.
        max_abs: bound of the log ratio; beyond it the gradient is 0.

    Returns:
        [B, T] in at least float32; 0, with gradient 0, where mask is False.

    Raises:
        ValueError: shapes differ.

    Source: PPO (arXiv:1707.06347); the bound of 20 is verl's.
    """
    difference = _masked_difference(logprobs, old_logprobs, mask)
    return jnp.clip(difference, -max_abs, max_abs)


def sequence_log_ratio(
    logprobs: jax.Array,
    old_logprobs: jax.Array,
    mask: jax.Array,
    segment_ids: jax.Array,
    advantages: jax.Array,
    *,
    cap: float = 10.0,
) -> jax.Array:
    """Mean log ratio of the whole trajectory, at each of its tokens.

        min(mean_t (logp_t - old_t), cap),  the mean over sampled tokens

    The gradient of one token's value reaches every token of its trajectory. Summed with
    sequence_mean weights this is the sequence form of GSPO.

    Args:
        logprobs: [B, T] of the policy now, nats; the gradient flows here.
        old_logprobs: [B, T] of the policy being improved, nats.
        mask: [B, T] bool, the policy sampled this token.
        segment_ids: [B, T] int32, which trajectory of the row.
        advantages: [B, T]; not used here.
        cap: upper bound of the log ratio; beyond it the gradient is 0.

    Returns:
        [B, T] in at least float32; 0, with gradient 0, where mask is False.

    Source: GSPO (arXiv:2507.18071), eq. 7; the cap of 10 is verl's.
    """
    difference = _masked_difference(logprobs, old_logprobs, mask)
    mean = to_tokens(segment_mean(difference, mask, segment_ids), segment_ids)
    return jnp.where(mask, jnp.minimum(mean, cap), 0.0)


def sequence_token_log_ratio(
    logprobs: jax.Array,
    old_logprobs: jax.Array,
    mask: jax.Array,
    segment_ids: jax.Array,
    advantages: jax.Array,
    *,
    cap: float = 10.0,
) -> jax.Array:
    """Mean log ratio of the trajectory, with the gradient of the token alone.

        min(sg(mean_t (logp_t - old_t)) + logp_t - sg(logp_t), cap)

    Value and, where advantages are constant over a trajectory, total gradient equal
    those of sequence_log_ratio; here advantages may also differ between tokens.

    Args and Returns: as sequence_log_ratio.

    Source: GSPO-token (arXiv:2507.18071, section 4.3).
    """
    difference = _masked_difference(logprobs, old_logprobs, mask)
    mean = to_tokens(segment_mean(difference, mask, segment_ids), segment_ids)
    own_gradient = difference - jax.lax.stop_gradient(difference)
    value = jax.lax.stop_gradient(mean) + own_gradient
    return jnp.where(mask, jnp.minimum(value, cap), 0.0)


def geometric_log_ratio(
    logprobs: jax.Array,
    old_logprobs: jax.Array,
    mask: jax.Array,
    segment_ids: jax.Array,
    advantages: jax.Array,
    *,
    eps_low: float,
    eps_high: float,
) -> jax.Array:
    """Mean over the trajectory of token log ratios clipped on their pessimistic side.

        c_t = min(l_t, eps_high) if A_t >= 0 else max(l_t, -eps_low),  l = logp - old
        mean_t c_t

    With the surrogate "unclipped" and sequence_mean weights this is GMPO.

    Args:
        logprobs: [B, T] of the policy now, nats; the gradient flows here.
        old_logprobs: [B, T] of the policy being improved, nats.
        mask: [B, T] bool, the policy sampled this token.
        segment_ids: [B, T] int32, which trajectory of the row.
        advantages: [B, T]; only their sign is used.
        eps_low: bound below, in nats of log ratio, at least 0.
        eps_high: bound above, in nats of log ratio, at least 0.

    Returns:
        [B, T] in at least float32, at most 20 in size; 0 where mask is False.

    Source: GMPO (arXiv:2507.20673), eq. 4, clipping each token's log ratio; its
    setting is 0.4 on both sides.
    """
    difference = jnp.clip(_masked_difference(logprobs, old_logprobs, mask), -20.0, 20.0)
    clipped = jnp.where(
        advantages >= 0,
        jnp.minimum(difference, eps_high),
        jnp.maximum(difference, -eps_low),
    )
    mean = to_tokens(segment_mean(clipped, mask, segment_ids), segment_ids)
    return jnp.where(mask, mean, 0.0)


def _masked_difference(
    logprobs: jax.Array, old_logprobs: jax.Array, mask: jax.Array
) -> jax.Array:
    """logprobs - old_logprobs, exactly 0 in value and gradient where masked."""
    check_same_shape(logprobs=logprobs, old_logprobs=old_logprobs, mask=mask)
    now = jnp.where(mask, at_least_float32(logprobs), 0.0)
    old = jnp.where(mask, at_least_float32(old_logprobs), 0.0)
    return now - jax.lax.stop_gradient(old)
