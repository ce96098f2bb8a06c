"""Estimators of KL(policy || reference) at one sampled token.

All take (logprobs, ref_logprobs), each [B, T], and return [B, T] in at least float32.
With d = ref - logp and samples from the policy, each has the KL as its expectation
(k2 only to second order); their gradients differ. Used as a loss, k2 and k3_plus give
the gradient of the KL, k1 gives none on average, k3 a biased one.
"""

import jax
import jax.numpy as jnp

from agentic_jax.losses.shapes import at_least_float32, check_same_shape


def no_kl(logprobs: jax.Array, ref_logprobs: jax.Array | None) -> jax.Array:
    """Zeros: no reference is asked for; [B, T]."""
    return jnp.zeros_like(at_least_float32(logprobs))


def k1(logprobs: jax.Array, ref_logprobs: jax.Array) -> jax.Array:
    """Log ratio itself, -d: unbiased in value, with a gradient of mean 0.

    Args:
        logprobs: [B, T] of the policy now, nats.
        ref_logprobs: [B, T] of the frozen reference, nats; no gradient.

    Returns:
        [B, T], negative where the reference likes the token better.

    Raises:
        ValueError: there is no reference, or shapes differ.

    Source: Schulman, "Approximating KL divergence", 2020 (for k1, k2 and k3).
    """
    return -_difference(logprobs, ref_logprobs)


def absolute(logprobs: jax.Array, ref_logprobs: jax.Array) -> jax.Array:
    """Size of the log ratio, |d|; args as k1. verl's "abs"."""
    return jnp.abs(_difference(logprobs, ref_logprobs))


def k2(logprobs: jax.Array, ref_logprobs: jax.Array) -> jax.Array:
    """Half the squared log ratio, d^2 / 2; args as k1."""
    return 0.5 * jnp.square(_difference(logprobs, ref_logprobs))


def k3(
    logprobs: jax.Array, ref_logprobs: jax.Array, *, max_abs: float = 20.0
) -> jax.Array:
    """Unbiased and never negative: exp(d) - d - 1.

    Args:
        logprobs: [B, T] of the policy now, nats.
        ref_logprobs: [B, T] of the frozen reference, nats; no gradient.
        max_abs: bound of d, so that exp(d) stays finite; beyond it the gradient is 0.

    Returns:
        [B, T], at least 0. The value itself is not clamped, as in TRL.

    Raises:
        ValueError: there is no reference, or shapes differ.
    """
    d = jnp.clip(_difference(logprobs, ref_logprobs), -max_abs, max_abs)
    return jnp.exp(d) - d - 1.0


def k3_clamped(logprobs: jax.Array, ref_logprobs: jax.Array) -> jax.Array:
    """k3 clamped to [-10, 10], as verl has it: no gradient where d exceeds 2.6 or so.

    Args and Returns: as k1.

    Source: verl's "low_var_kl".
    """
    return jnp.clip(k3(logprobs, ref_logprobs), -10.0, 10.0)


def k3_plus(logprobs: jax.Array, ref_logprobs: jax.Array) -> jax.Array:
    """The value of k3 with the gradient of k2, which is that of the KL itself.

    Args and Returns: as k1.

    Source: verl's "k3+", a straight-through combination.
    """
    value, slope = k3(logprobs, ref_logprobs), k2(logprobs, ref_logprobs)
    return jax.lax.stop_gradient(value - slope) + slope


def _difference(logprobs: jax.Array, ref_logprobs: jax.Array | None) -> jax.Array:
    """Reference minus policy, gradient through the policy only."""
    if ref_logprobs is None:
        raise ValueError("this KL needs ref_logprobs; give them or use kl 'none'")
    check_same_shape(logprobs=logprobs, ref_logprobs=ref_logprobs)
    ref = jax.lax.stop_gradient(at_least_float32(ref_logprobs))
    return ref - at_least_float32(logprobs)
