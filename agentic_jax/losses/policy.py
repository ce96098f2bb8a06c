"""The policy loss: log ratio, surrogate, KL and entropy bonus put together."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from agentic_jax.batch import Targets
from agentic_jax.losses.shapes import at_least_float32, check_same_shape


def policy_loss(
    logprobs: jax.Array,
    targets: Targets,
    *,
    log_ratio: Callable[..., jax.Array],
    surrogate: Callable[..., jax.Array],
    kl: Callable[..., jax.Array],
    kl_coef: float,
    entropy: jax.Array | None = None,
    entropy_coef: float = 0.0,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Loss of some rows of an optimizer step; losses of all its rows add up.

        sum_t w_t (surrogate_t + kl_coef KL_t - entropy_coef H_t)

    Args:
        logprobs: [B, T] of the policy now, nats; the gradient flows here.
        targets: everything else, for the same rows.
        log_ratio: a function of LOG_RATIOS, options bound.
        surrogate: a function of SURROGATES, options bound.
        kl: a function of KLS.
        kl_coef: factor of the KL term, at least 0.
        entropy: [B, T] of the policy now, nats; needed for an entropy bonus.
        entropy_coef: factor of the entropy bonus, at least 0.

    Returns:
        loss [] and metrics, scalars that add up over the micro-batches of a step:
        weighted sums as they are, sums over sampled tokens under names that end in
        "_sum", and policy/tokens. mean_metrics makes means of the total. Nothing in a
        masked position, NaN and inf included, touches any of them or the gradient;
        an all-masked batch gives 0.

    Raises:
        ValueError: shapes differ, or an entropy bonus without entropy.
    """
    if entropy is None and entropy_coef != 0.0:
        raise ValueError(f"entropy_coef is {entropy_coef} but no entropy was given")
    mask = targets.mask
    logprobs = _where_sampled(mask, logprobs)
    old_logprobs = _where_sampled(mask, targets.old_logprobs)
    advantages = _where_sampled(mask, targets.advantages)
    weights = _where_sampled(mask, targets.weights)
    ref_logprobs = _where_sampled(mask, targets.ref_logprobs)
    entropy = jnp.zeros_like(logprobs) if entropy is None else entropy
    entropy = _where_sampled(mask, entropy)

    ratios = log_ratio(logprobs, old_logprobs, mask, targets.segment_ids, advantages)
    token_kl = kl(logprobs, ref_logprobs)
    surrogate_loss = jnp.sum(weights * surrogate(ratios, advantages))
    kl_loss = kl_coef * jnp.sum(weights * token_kl)
    entropy_loss = -entropy_coef * jnp.sum(weights * entropy)
    loss = surrogate_loss + kl_loss + entropy_loss

    is_clipped = _has_no_gradient(surrogate, ratios, advantages) & mask
    metrics = {
        "policy/loss": loss,
        "policy/surrogate_loss": surrogate_loss,
        "policy/kl_loss": kl_loss,
        "policy/entropy_loss": entropy_loss,
        "policy/tokens": jnp.sum(mask),
        "policy/ratio_sum": jnp.sum(jnp.exp(ratios), where=mask),
        "policy/step_kl_sum": jnp.sum(old_logprobs - logprobs),
        "policy/ref_kl_sum": jnp.sum(token_kl, where=mask),
        "policy/entropy_sum": jnp.sum(entropy),
        "policy/clipped_high_sum": jnp.sum(is_clipped & (advantages > 0)),
        "policy/clipped_low_sum": jnp.sum(is_clipped & (advantages < 0)),
    }
    metrics = {
        k: jax.lax.stop_gradient(v).astype(loss.dtype) for k, v in metrics.items()
    }
    return loss, metrics


def mean_metrics(totals: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """What to log of metrics added up over a step: each "_sum" over policy/tokens.

    Args:
        totals: the metrics of policy_loss, added up over all micro-batches.

    Returns:
        The same scalars, "_sum" names replaced by means over sampled tokens; with no
        tokens these are 0.
    """
    tokens = jnp.maximum(totals["policy/tokens"], 1.0)
    return {
        name.removesuffix("_sum"): value / tokens if name.endswith("_sum") else value
        for name, value in totals.items()
    }


def _where_sampled(mask: jax.Array, values: jax.Array | None) -> jax.Array | None:
    """The values, exactly 0 with gradient 0 where masked; None stays None."""
    if values is None:
        return None
    check_same_shape(mask=mask, values=values)
    return jnp.where(mask, at_least_float32(values), 0.0)


def _has_no_gradient(
    surrogate: Callable[..., jax.Array], ratios: jax.Array, advantages: jax.Array
) -> jax.Array:
    """[B, T] bool: where the surrogate is flat, which is what clipping does."""
    ratios = jax.lax.stop_gradient(ratios)
    _, slope = jax.jvp(
        lambda x: surrogate(x, advantages), (ratios,), (jnp.ones_like(ratios),)
    )
    return slope == 0
