"""Surrogate objectives without a hard clip of the loss, one value per token.

All take (log_ratio, advantages), each [B, T], like those of losses/clipping.py.
"""

import jax
import jax.numpy as jnp

from agentic_jax.losses.shapes import at_least_float32, check_same_shape


def unclipped_surrogate(log_ratio: jax.Array, advantages: jax.Array) -> jax.Array:
    """Importance-weighted policy gradient: loss_t = -r_t A_t.

    Args:
        log_ratio: [B, T] in nats.
        advantages: [B, T]; no gradient flows through them.

    Returns:
        [B, T] loss per token; at least float32.

    Raises:
        ValueError: shapes differ.

    Source: PPO (arXiv:1707.06347), eq. 6.
    """
    log_ratio, advantages = _prepared(log_ratio, advantages)
    return -jnp.exp(log_ratio) * advantages


def reinforce_surrogate(log_ratio: jax.Array, advantages: jax.Array) -> jax.Array:
    """REINFORCE: loss_t = -A_t (logp_t - old_t), gradient -A_t whatever the ratio.

    The value lacks the term A_t old_t of the usual -A_t logp_t, which no parameter
    moves; on policy it is 0.

    Args:
        log_ratio: [B, T] in nats.
        advantages: [B, T]; no gradient flows through them.

    Returns:
        [B, T] loss per token; at least float32.

    Source: Williams 1992; a rollout correction enters through the weights.
    """
    log_ratio, advantages = _prepared(log_ratio, advantages)
    return -log_ratio * advantages


def cispo_surrogate(
    log_ratio: jax.Array,
    advantages: jax.Array,
    *,
    eps_low: float,
    eps_high: float,
) -> jax.Array:
    """REINFORCE weighted by the clipped ratio, so that every token keeps a gradient.

        loss_t = -sg(clip(r_t, 1 - eps_low, 1 + eps_high)) A_t (logp_t - old_t)

    Differs from the paper's value by sg(clip(r_t)) A_t old_t, which no parameter moves;
    the gradient is the paper's.

    Args:
        log_ratio: [B, T] in nats.
        advantages: [B, T]; no gradient flows through them.
        eps_low: how far below 1 the weight may go; 1 or more leaves it free.
        eps_high: how far above 1 the weight may go.

    Returns:
        [B, T] loss per token; at least float32.

    Source: MiniMax-M1 (arXiv:2506.13585), eq. 4-5.
    """
    log_ratio, advantages = _prepared(log_ratio, advantages)
    weight = jnp.clip(jnp.exp(log_ratio), 1.0 - eps_low, 1.0 + eps_high)
    return -jax.lax.stop_gradient(weight) * advantages * log_ratio


def sapo_surrogate(
    log_ratio: jax.Array,
    advantages: jax.Array,
    *,
    tau_pos: float,
    tau_neg: float,
) -> jax.Array:
    """Soft gate in place of the clip: its gradient fades with the distance from 1.

        loss_t = -A_t (4 / tau) sigmoid(tau (r_t - 1)),  tau = tau_pos if A_t > 0
                                                               else tau_neg

    On policy the gradient is -A_t, as for every other surrogate.

    Args:
        log_ratio: [B, T] in nats.
        advantages: [B, T]; no gradient flows through them.
        tau_pos: gate temperature for positive advantages, above 0; 1.0 in the paper.
        tau_neg: for the others, above 0; 1.05 in the paper, so bad tokens fade faster.

    Returns:
        [B, T] loss per token; at least float32.

    Source: SAPO (arXiv:2511.20347), eq. 5-6.
    """
    log_ratio, advantages = _prepared(log_ratio, advantages)
    tau = jnp.where(advantages > 0, tau_pos, tau_neg)
    gate = jax.nn.sigmoid(tau * (jnp.exp(log_ratio) - 1.0)) * 4.0 / tau
    return -gate * advantages


def _prepared(
    log_ratio: jax.Array, advantages: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Both in at least float32, the advantages without gradient."""
    check_same_shape(log_ratio=log_ratio, advantages=advantages)
    advantages = jax.lax.stop_gradient(at_least_float32(advantages))
    return at_least_float32(log_ratio), advantages
