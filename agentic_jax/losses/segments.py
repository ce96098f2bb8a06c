"""Sums and means over the trajectories of packed rows.

A [B, T] array of ids says which trajectory (or turn) of its row each token belongs to,
from 1; 0 is padding. There are at most T ids in a row, so reductions return
[B, T + 1] arrays whose column s is segment s. They stay within a row and take linear
time, so rows can be sharded.
"""

import jax
import jax.numpy as jnp


def segment_sum(
    values: jax.Array, mask: jax.Array, segment_ids: jax.Array
) -> jax.Array:
    """Sum of the unmasked values of each segment.

    Args:
        values: [B, T]; what stands in masked places is ignored, NaN too.
        mask: [B, T] bool.
        segment_ids: [B, T] int32 from 0 to T.

    Returns:
        [B, T + 1] in the dtype of values; 0 for a segment without unmasked tokens.
    """
    num_segments = segment_ids.shape[1] + 1
    kept = jnp.where(mask, values, jnp.zeros((), values.dtype))
    return jax.vmap(
        lambda row, ids: jax.ops.segment_sum(row, ids, num_segments=num_segments)
    )(kept, segment_ids)


def segment_count(mask: jax.Array, segment_ids: jax.Array) -> jax.Array:
    """Number of unmasked tokens of each segment: [B, T + 1] int32."""
    return segment_sum(mask.astype(jnp.int32), mask, segment_ids)


def segment_mean(
    values: jax.Array, mask: jax.Array, segment_ids: jax.Array
) -> jax.Array:
    """Mean of the unmasked values of each segment, [B, T + 1]; 0 if there are none."""
    count = jnp.maximum(segment_count(mask, segment_ids), 1)
    return segment_sum(values, mask, segment_ids) / count.astype(values.dtype)


def segment_max(
    values: jax.Array, mask: jax.Array, segment_ids: jax.Array
) -> jax.Array:
    """Largest unmasked value of each segment, [B, T + 1]; -inf if there are none."""
    num_segments = segment_ids.shape[1] + 1
    kept = jnp.where(mask, values, -jnp.inf)
    return jax.vmap(
        lambda row, ids: jax.ops.segment_max(row, ids, num_segments=num_segments)
    )(kept, segment_ids)


def to_tokens(per_segment: jax.Array, segment_ids: jax.Array) -> jax.Array:
    """Gives each token the value of its segment: [B, T + 1] and [B, T] to [B, T]."""
    return jnp.take_along_axis(per_segment, segment_ids, axis=1)
