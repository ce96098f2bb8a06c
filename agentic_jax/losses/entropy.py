"""Entropy of each turn of packed trajectories, and how a tool's answer changes it."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from agentic_jax.batch import Batch
from agentic_jax.losses.segments import (
    segment_count,
    segment_mean,
    segment_sum,
    to_tokens,
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Turns:
    """The turns of each row in order, every field but turn_index [B, T + 1].

    Column u is the u-th stretch of tokens with one trajectory and one turn, prompts
    included; unused columns and column 0 are 0.

    Attributes:
        segment: int32, the trajectory that it belongs to.
        calls: int32, tool calls that the turn made; 0 in a prompt and a last answer.
        entropy: mean entropy of its sampled tokens, nats; 0 if it has none.
        has_next: bool, the same trajectory goes on with another turn, and both have
            sampled tokens to take an entropy of.
        turn_index: [B, T] int32, the column of each token.
    """

    segment: jax.Array
    calls: jax.Array
    entropy: jax.Array
    has_next: jax.Array
    turn_index: jax.Array


def turns_of(batch: Batch, entropy: jax.Array, *, markup: str) -> Turns:
    """Cuts rows into turns and averages the entropy of each.

    Args:
        batch: [B, T] rows with turn_calls, and call_mask if markup is "out".
        entropy: [B, T] nats per token.
        markup: "in" if tokens of the call itself count in its turn's mean, "out" if
            they do not.

    Returns:
        Turns; tool output and prompts enter no mean.

    Raises:
        ValueError: the batch lacks what is needed, or markup is another word.

    Source: TEPO (arXiv:2602.02050), eq. 4; it does not say whether call markup counts.
    """
    if batch.turn_calls is None:
        raise ValueError("turn-level credit needs batch.turn_calls: fill it in packing")
    if markup not in ("in", "out"):
        raise ValueError(f"markup is {markup!r}; it is 'in' or 'out'")
    mask = batch.mask
    if markup == "out":
        if batch.call_mask is None:
            raise ValueError("markup 'out' needs batch.call_mask: fill it in packing")
        mask = mask & ~batch.call_mask.astype(bool)
    is_first = _starts(batch.segment_ids) | _starts(batch.turn_ids)
    # Padding gets a turn of its own, in segment 0, which every reader leaves out.
    turn_index = jnp.cumsum(is_first, axis=1, dtype=jnp.int32)
    segment = segment_sum(batch.segment_ids, is_first, turn_index)
    measured = segment_count(mask, turn_index) > 0
    same_next = (segment == _shift_left(segment)) & (segment > 0)
    return Turns(
        segment=segment,
        calls=segment_sum(batch.turn_calls, is_first, turn_index),
        entropy=segment_mean(entropy, mask, turn_index),
        has_next=same_next & measured & _shift_left(measured),
        turn_index=turn_index,
    )


def entropy_change(turns: Turns) -> jax.Array:
    """How much the entropy changes from each turn to the next.

        dH_u = H_{u+1} - H_u: what the calls of turn u did

    Returns:
        [B, T + 1] nats; 0 where has_next is False.

    Source: TEPO (arXiv:2602.02050), eq. 5.
    """
    change = _shift_left(turns.entropy) - turns.entropy
    return jnp.where(turns.has_next, change, 0.0)


def entropy_change_ratio(turns: Turns, *, eps: float) -> jax.Array:
    """The change relative to the entropy before the call: dH_u / (H_u + eps).

    Args:
        turns: from turns_of.
        eps: nats; 1e-8.

    Returns:
        [B, T + 1]; 0 where has_next is False.

    Source: TEPO (arXiv:2602.02050), section 3.
    """
    return entropy_change(turns) / (turns.entropy + eps)


def turn_to_tokens(per_turn: jax.Array, turns: Turns) -> jax.Array:
    """Gives each token the value of its turn: [B, T + 1] to [B, T]."""
    return to_tokens(per_turn, turns.turn_index)


def turn_to_segment(per_turn: jax.Array, turns: Turns) -> jax.Array:
    """Sums the turns of each trajectory, [B, T + 1] to [B, T + 1] by segment id."""
    sums = segment_sum(per_turn, turns.segment > 0, turns.segment)
    return sums[:, : per_turn.shape[1]]


def previous_turn(per_turn: jax.Array, turns: Turns) -> tuple[jax.Array, jax.Array]:
    """The value of the turn before, and whether it is of the same trajectory."""
    shifted = jnp.pad(per_turn[:, :-1], ((0, 0), (1, 0)))
    before = jnp.pad(turns.segment[:, :-1], ((0, 0), (1, 0)))
    return shifted, (before == turns.segment) & (before > 0)


def _starts(ids: jax.Array) -> jax.Array:
    """[B, T] bool: this token's id differs from the one before it."""
    return jnp.pad(ids[:, 1:] != ids[:, :-1], ((0, 0), (1, 0)), constant_values=True)


def _shift_left(per_turn: jax.Array) -> jax.Array:
    """The value of the next turn, 0 after the last column."""
    return jnp.pad(per_turn[:, 1:], ((0, 0), (0, 1)))
