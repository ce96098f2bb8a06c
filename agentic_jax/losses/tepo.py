"""TEPO: tool calls that lower the policy's entropy earn more of the reward.

Both functions have the signature of losses/credit.py. Turns share the calls made in
them: several calls of one turn have one entropy change and one indicator. A call at
which the trajectory ends has no turn after it: it counts, with indicator 0.
"""

import jax
import jax.numpy as jnp

from agentic_jax.batch import Batch, Outcome, Scores
from agentic_jax.losses.advantages import normalize_group
from agentic_jax.losses.credit import collect, spread
from agentic_jax.losses.entropy import (
    Turns,
    entropy_change,
    previous_turn,
    turn_to_segment,
    turn_to_tokens,
    turns_of,
)


def tepo_sparse(
    outcome: Outcome,
    scores: Scores,
    batch: Batch,
    *,
    eps: float,
    markup: str,
    ddof: int = 1,
) -> jax.Array:
    """Reward times the share of calls that lowered entropy, group-normalised.

        r = F1 m / n  (F1 where n = 0),  n calls, m of them with dH < 0

    Args:
        outcome: [P, G]; reward is the F1 of the formula.
        scores: entropy of each token, nats.
        batch: [B, T] rows with turn_calls.
        eps: added to the standard deviation; 1e-6.
        markup: "in" or "out": whether call markup counts in a turn's entropy.
        ddof: see advantages.normalize_group.

    Returns:
        [B, T] advantages, one value per trajectory.

    Raises:
        ValueError: see entropy.turns_of.

    Source: TEPO (arXiv:2602.02050), eq. 8-10.
    """
    turns = turns_of(batch, scores.entropy, markup=markup)
    rewards = sparse_rewards(outcome, turns)
    advantages = jax.vmap(lambda r, v: normalize_group(r, v, eps=eps, ddof=ddof))(
        rewards, outcome.valid
    )
    return spread(advantages, outcome, batch)


def tepo_dense(
    outcome: Outcome,
    scores: Scores,
    batch: Batch,
    *,
    alpha: float,
    final: str,
    eps: float,
    markup: str,
    ddof: int = 1,
) -> jax.Array:
    """A reward for each call, normalised over all calls of the group.

        r_k = F1 (1 + alpha I_k),  I_k = 1 if dH_k < 0 else 0
        A_k = (r_k - mean) / (std + eps) over the calls of the group

    The tokens of a turn get the advantage of the calls that it makes.

    Args:
        outcome: [P, G]; reward is the F1 of the formula.
        scores: entropy of each token, nats.
        batch: [B, T] rows with turn_calls.
        alpha: bonus of a call that lowers entropy; unstated in the paper, 0.5 here.
        final: what the tokens after the last call get, on which the paper is silent:
            "final_traj" the group-normalised F1, "final_zero" nothing,
            "final_last_tool" the advantage of the last call (the group-normalised F1
            where there was no call).
        eps: added to the standard deviations; 1e-6.
        markup: "in" or "out": whether call markup counts in a turn's entropy.
        ddof: see advantages.normalize_group.

    Returns:
        [B, T] advantages; 0 for the calls of a group with one call or equal r_k.

    Raises:
        ValueError: final is another word; see also entropy.turns_of.

    Source: TEPO (arXiv:2602.02050), eq. 11-13.
    """
    if final not in ("final_traj", "final_zero", "final_last_tool"):
        raise ValueError(
            f"final is {final!r}; it is 'final_traj', 'final_zero' or 'final_last_tool'"
        )
    turns = turns_of(batch, scores.entropy, markup=markup)
    by_call = call_advantages(outcome, turns, alpha=alpha, eps=eps, ddof=ddof)
    whole = jax.vmap(lambda r, v: normalize_group(r, v, eps=eps, ddof=ddof))(
        outcome.reward, outcome.valid
    )
    last = turn_values(whole, outcome, turns)
    if final == "final_zero":
        last = jnp.zeros_like(last)
    elif final == "final_last_tool":
        before, same = previous_turn(by_call, turns)
        last = jnp.where(
            same & (previous_turn(turns.calls, turns)[0] > 0), before, last
        )
    per_turn = jnp.where(turns.calls > 0, by_call, last)
    return jnp.where(batch.mask, turn_to_tokens(per_turn, turns), 0.0)


def indicators(turns: Turns) -> jax.Array:
    """1 at each turn whose calls lowered the entropy, strictly; [B, T + 1] int32."""
    return ((entropy_change(turns) < 0) & turns.has_next).astype(jnp.int32)


def sparse_rewards(outcome: Outcome, turns: Turns) -> jax.Array:
    """F1 m / n of each sample, F1 where it made no call; [P, G]."""
    n = collect(turn_to_segment(turns.calls, turns), outcome)
    m = collect(turn_to_segment(turns.calls * indicators(turns), turns), outcome)
    return jnp.where(n > 0, outcome.reward * m / jnp.maximum(n, 1), outcome.reward)


def call_rewards(outcome: Outcome, turns: Turns, *, alpha: float) -> jax.Array:
    """F1 (1 + alpha I) at each turn, [B, T + 1]; meant where turns.calls > 0."""
    reward = turn_values(outcome.reward, outcome, turns)
    return reward * (1.0 + alpha * indicators(turns))


def call_advantages(
    outcome: Outcome, turns: Turns, *, alpha: float, eps: float, ddof: int
) -> jax.Array:
    """Rewards of calls, normalised over all calls of the group; [B, T + 1]."""
    rewards = call_rewards(outcome, turns, alpha=alpha)
    count = _group_sum(turns.calls, outcome, turns)
    mean = _group_sum(turns.calls * rewards, outcome, turns) / jnp.maximum(count, 1)
    centered = rewards - turn_values(mean, outcome, turns)
    squares = _group_sum(turns.calls * jnp.square(centered), outcome, turns)
    scale = jnp.sqrt(squares / jnp.maximum(count - ddof, 1)) + eps
    differ = _calls_differ(outcome, turns, alpha=alpha)
    scale = turn_values(scale, outcome, turns, fill=1.0)
    normalized = centered / jnp.where(scale > 0, scale, 1.0)
    informative = turn_values(differ.astype(scale.dtype), outcome, turns) > 0
    return jnp.where(informative, normalized, 0.0)


def turn_values(
    per_sample: jax.Array, outcome: Outcome, turns: Turns, *, fill: float = 0.0
) -> jax.Array:
    """Gives each turn the value of its sample, `fill` where there is none.

    Args:
        per_sample: [P, G].
        outcome: where each sample lies.
        turns: the turns of each row.
        fill: for prompts of no sample, padding and invalid samples.

    Returns:
        [B, T + 1].
    """
    table = jnp.full(turns.segment.shape, fill, per_sample.dtype)
    segment = jnp.where(outcome.valid, outcome.segment, 0)
    kept = jnp.where(outcome.valid, per_sample, fill)
    table = table.at[outcome.row, segment].set(kept)
    return jnp.take_along_axis(table, turns.segment, axis=1)


def _group_sum(per_turn: jax.Array, outcome: Outcome, turns: Turns) -> jax.Array:
    """Sum over all turns of all valid samples of the group, at each sample; [P, G]."""
    per_sample = collect(turn_to_segment(per_turn, turns), outcome)
    total = jnp.sum(per_sample, axis=1, keepdims=True)
    return jnp.broadcast_to(total, per_sample.shape)


def _calls_differ(outcome: Outcome, turns: Turns, *, alpha: float) -> jax.Array:
    """[P, G] bool: two calls of the group have different rewards, decided exactly."""
    n = collect(turn_to_segment(turns.calls, turns), outcome)
    m = collect(turn_to_segment(turns.calls * indicators(turns), turns), outcome)
    plain, raised = outcome.reward, outcome.reward * (1.0 + alpha)
    low = jnp.minimum(
        jnp.where(n > m, plain, jnp.inf), jnp.where(m > 0, raised, jnp.inf)
    )
    high = jnp.maximum(
        jnp.where(n > m, plain, -jnp.inf), jnp.where(m > 0, raised, -jnp.inf)
    )
    differ = jnp.min(low, axis=1, keepdims=True) < jnp.max(high, axis=1, keepdims=True)
    return jnp.broadcast_to(differ, n.shape)
