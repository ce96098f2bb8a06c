"""ARPO's hard advantage: what branches share gets the mean of their advantages."""

import jax
import jax.numpy as jnp

from agentic_jax.batch import Batch, Outcome, Scores
from agentic_jax.losses.advantages import normalize_group
from agentic_jax.losses.segments import segment_sum


def arpo_hard(
    outcome: Outcome, scores: Scores, batch: Batch, *, eps: float
) -> jax.Array:
    """Group-normalised reward, averaged over all samples that share the prefix.

        A_it = mean of A_j over the j whose tokens up to t equal those of i

    Samples share what they have in common, whether they were branched or happened to
    be sampled alike. Each copy of a shared token keeps its place in the loss.

    Args:
        outcome: [P, G] rewards and places.
        scores: not used.
        batch: [B, T] rows.
        eps: added to the standard deviation; 1e-6.

    Returns:
        [B, T] advantages. Time is G times that of a pass over the tokens, memory G
        rows of T at once.

    Source: ARPO (arXiv:2507.19849), eq. 5, hard advantage estimation.
    """
    advantages = jax.vmap(lambda r, v: normalize_group(r, v, eps=eps))(
        outcome.reward, outcome.valid
    )
    all_tokens, all_ids = jnp.asarray(batch.tokens), jnp.asarray(batch.segment_ids)
    length = all_tokens.shape[1]
    offset = _segment_starts(all_ids)[outcome.row, outcome.segment]

    def one_group(
        group: tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array],
    ) -> jax.Array:
        row, segment, offset, valid, advantages = group
        place = offset[:, None] + jnp.arange(length)[None, :]
        inside = place < length
        place = jnp.where(inside, place, 0)
        inside &= all_ids[row[:, None], place] == segment[:, None]
        tokens = jnp.where(inside, all_tokens[row[:, None], place], -1)
        return shared_prefix_mean(tokens, valid, advantages)

    hard = jax.lax.map(
        one_group, (outcome.row, outcome.segment, offset, outcome.valid, advantages)
    )
    # From positions in the sample back to where it lies in its row.
    place = offset[..., None] + jnp.arange(length)[None, None, :]
    place = jnp.where(outcome.valid[..., None], place, length)
    row = jnp.broadcast_to(outcome.row[..., None], place.shape)
    flat = jnp.zeros(batch.tokens.shape, hard.dtype)
    flat = flat.at[row, place].add(hard, mode="drop")
    return jnp.where(batch.mask, flat, 0.0)


def shared_prefix_mean(
    tokens: jax.Array, valid: jax.Array, advantages: jax.Array
) -> jax.Array:
    """At each token, the mean advantage of the samples that agree up to it.

    Args:
        tokens: [G, T] int32 from the start of each sample, -1 after its end.
        valid: [G] bool; others share with nobody.
        advantages: [G].

    Returns:
        [G, T]; 0 after a sample's end and for invalid samples.
    """
    length = tokens.shape[1]

    def one_sample(args: tuple[jax.Array, jax.Array]) -> jax.Array:
        own, own_valid = args
        agrees = (tokens == own[None, :]) & (own >= 0)[None, :]
        agrees &= (valid & own_valid)[:, None]
        common = jnp.sum(jnp.cumprod(agrees, axis=1), axis=1)
        # A sample that shares `common` tokens counts at every position below it.
        totals = jnp.zeros((2, length + 1), advantages.dtype)
        totals = totals.at[0, common].add(advantages)
        totals = totals.at[1, common].add(1.0)
        beyond = jnp.cumsum(totals[:, ::-1], axis=1)[:, ::-1][:, 1:]
        inside = (own >= 0) & own_valid
        return jnp.where(inside, beyond[0] / jnp.maximum(beyond[1], 1.0), 0.0)

    return jax.lax.map(one_sample, (tokens, valid))


def _segment_starts(segment_ids: jax.Array) -> jax.Array:
    """[B, T + 1] int32: the column at which each segment of a row starts."""
    before = jnp.pad(segment_ids[:, :-1], ((0, 0), (1, 0)))
    column = jnp.broadcast_to(
        jnp.arange(segment_ids.shape[1], dtype=jnp.int32)[None, :], segment_ids.shape
    )
    return segment_sum(column, segment_ids != before, segment_ids)
