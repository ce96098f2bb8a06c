"""Cross-entropy of given tokens."""

import jax
import jax.numpy as jnp

from agentic_jax.batch import Targets
from agentic_jax.losses.shapes import check_same_shape


def cross_entropy(
    logprobs: jax.Array, entropy: jax.Array, targets: Targets
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Weighted negative log-probability of the masked-in tokens.

        loss = -sum_t w_t logprobs_t

    Args:
        logprobs: [B, T] of the policy now, nats; the gradient flows here.
        entropy: [B, T] of the policy now, nats; only for its metric.
        targets: mask and weights; the weights of one optimizer step sum to 1.

    Returns:
        loss [] and metrics that add up over micro-batches, as in policy_loss; 0 for an
        all-masked batch. What masked positions hold, NaN included, changes nothing.

    Raises:
        ValueError: shapes differ.
    """
    check_same_shape(logprobs=logprobs, entropy=entropy, mask=targets.mask)
    logprobs = jnp.where(targets.mask, logprobs, 0.0)
    loss = -jnp.sum(jnp.where(targets.mask, targets.weights, 0.0) * logprobs)
    entropy_sum = jnp.sum(jnp.where(targets.mask, entropy, 0.0))
    metrics = {
        "sft/loss": loss,
        "policy/entropy_sum": entropy_sum,
        "policy/tokens": jnp.sum(targets.mask).astype(loss.dtype),
    }
    return loss, jax.tree.map(jax.lax.stop_gradient, metrics)
