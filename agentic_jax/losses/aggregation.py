"""How per-token losses become one number: a weight for each token of a whole step.

All functions take (mask, segment_ids, prompt_ids), each [B, T], of one whole optimizer
step, before it is cut into micro-batches or spread over devices, and return weights
[B, T] that are 0 where mask is False: float32, or float64 if jax_enable_x64 is set. The
loss is sum(weights * loss): it adds up over micro-batches, packing and devices. An
all-False mask gives all-zero weights.
"""

import jax
import jax.numpy as jnp

from agentic_jax.losses.segments import segment_count, to_tokens


def token_mean_weights(
    mask: jax.Array, segment_ids: jax.Array, prompt_ids: jax.Array
) -> jax.Array:
    """Every sampled token of the step counts the same: 1/N, N = number of them.

    Args:
        mask: [B, T] bool, the policy sampled this token.
        segment_ids: [B, T] int32; not used here.
        prompt_ids: [B, T] int32; not used here.

    Returns:
        [B, T], sum 1.

    Source: DAPO (arXiv:2503.14476), eq. 8, over the whole step.
    """
    return mask.astype(float) / jnp.maximum(jnp.sum(mask), 1)


def group_token_mean_weights(
    mask: jax.Array, segment_ids: jax.Array, prompt_ids: jax.Array
) -> jax.Array:
    """Mean over the sampled tokens of each prompt's group, then over groups.

    Args:
        mask: [B, T] bool, the policy sampled this token.
        segment_ids: [B, T] int32; not used here.
        prompt_ids: [B, T] int32 from 1, at most B * T; 0 is padding.

    Returns:
        [B, T], sum 1; groups without sampled tokens are left out.

    Source: DAPO (arXiv:2503.14476), eq. 8, and arXiv:2510.11701 read literally.
    """
    flat_ids = prompt_ids.reshape(-1)
    counts = jax.ops.segment_sum(
        mask.reshape(-1).astype(jnp.int32), flat_ids, num_segments=flat_ids.size + 1
    )
    num_groups = jnp.maximum(jnp.sum(counts > 0), 1)
    per_token = counts[flat_ids].reshape(mask.shape)
    return mask.astype(float) / jnp.maximum(per_token, 1) / num_groups


def sequence_mean_weights(
    mask: jax.Array, segment_ids: jax.Array, prompt_ids: jax.Array
) -> jax.Array:
    """Mean over the sampled tokens of each trajectory, then over trajectories.

    Args:
        mask: [B, T] bool, the policy sampled this token.
        segment_ids: [B, T] int32, which trajectory of the row.
        prompt_ids: [B, T] int32; not used here.

    Returns:
        [B, T], sum 1; trajectories without sampled tokens are left out.

    Source: GRPO (arXiv:2402.03300), eq. 3; GSPO (arXiv:2507.18071), eq. 5.
    """
    counts = segment_count(mask, segment_ids)
    per_token = jnp.maximum(to_tokens(counts, segment_ids), 1)
    return mask.astype(float) / per_token / _num_sequences(counts)


def sequence_sum_weights(
    mask: jax.Array, segment_ids: jax.Array, prompt_ids: jax.Array
) -> jax.Array:
    """Sum over the tokens of each trajectory, mean over trajectories: 1/B per token.

    Args:
        mask: [B, T] bool, the policy sampled this token.
        segment_ids: [B, T] int32, which trajectory of the row.
        prompt_ids: [B, T] int32; not used here.

    Returns:
        [B, T], sum N/B, B trajectories with sampled tokens.

    Source: TEPO (arXiv:2602.02050), eq. 6.
    """
    counts = segment_count(mask, segment_ids)
    return mask.astype(float) / _num_sequences(counts)


def fixed_length_weights(
    mask: jax.Array,
    segment_ids: jax.Array,
    prompt_ids: jax.Array,
    *,
    max_tokens: int,
) -> jax.Array:
    """Sum over tokens over a constant horizon: 1/(B L), whatever the lengths.

    Args:
        mask: [B, T] bool, the policy sampled this token.
        segment_ids: [B, T] int32, which trajectory of the row.
        prompt_ids: [B, T] int32; not used here.
        max_tokens: L, the response budget; a constant, never a measured length.

    Returns:
        [B, T], sum N/(B L), B trajectories with sampled tokens.

    Raises:
        ValueError: max_tokens below 1.

    Source: Dr.GRPO (arXiv:2503.20783). verl leaves out 1/B.
    """
    if max_tokens < 1:
        raise ValueError(f"max_tokens is {max_tokens}; the horizon must be at least 1")
    counts = segment_count(mask, segment_ids)
    return mask.astype(float) / _num_sequences(counts) / max_tokens


def _num_sequences(counts: jax.Array) -> jax.Array:
    """How many trajectories have a sampled token, at least 1."""
    return jnp.maximum(jnp.sum(counts > 0), 1)
