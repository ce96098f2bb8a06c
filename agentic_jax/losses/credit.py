"""Credit: from what each sample earned to an advantage for each token.

All take (outcome, scores, batch) and return advantages [B, T], 0 where the policy did
not sample the token and at every token of an invalid sample. They see one whole
optimizer step; no gradient flows.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from agentic_jax.batch import Batch, Outcome, Scores
from agentic_jax.losses.advantages import (
    center_group,
    leave_one_out,
    length_weighted_baseline,
    normalize_each_reward,
    normalize_group,
    scale_by_batch,
)
from agentic_jax.losses.segments import segment_count, to_tokens
from agentic_jax.losses.shapes import at_least_float32


def group_normalized(
    outcome: Outcome, scores: Scores, batch: Batch, *, eps: float
) -> jax.Array:
    """Group-normalised reward of the trajectory at each of its sampled tokens.

    Args:
        outcome: [P, G] rewards and places.
        scores: not used.
        batch: [B, T] rows.
        eps: added to the standard deviation; 1e-6 in verl.

    Returns:
        [B, T] advantages; see advantages.normalize_group for the edges.

    Source: GRPO (arXiv:2402.03300), section 4.1.2.
    """
    advantages = jax.vmap(lambda r, v: normalize_group(r, v, eps=eps))(
        outcome.reward, outcome.valid
    )
    return spread(advantages, outcome, batch)


def group_centered(outcome: Outcome, scores: Scores, batch: Batch) -> jax.Array:
    """Reward less the group's mean at each sampled token, [B, T].

    Source: Dr.GRPO (arXiv:2503.20783).
    """
    return _per_group(center_group, outcome, batch)


def group_leave_one_out(outcome: Outcome, scores: Scores, batch: Batch) -> jax.Array:
    """Reward less the mean of the group's others at each sampled token, [B, T].

    Source: RLOO (arXiv:2402.14740).
    """
    return _per_group(leave_one_out, outcome, batch)


def group_length_weighted(outcome: Outcome, scores: Scores, batch: Batch) -> jax.Array:
    """Reward less the length-weighted mean of the group at each sampled token, [B, T].

    Lengths count sampled tokens only. Source: OPO (arXiv:2505.23585), eq. 7.
    """
    lengths = collect(segment_count(batch.mask, batch.segment_ids), outcome)
    advantages = jax.vmap(length_weighted_baseline)(
        outcome.reward, outcome.valid, lengths
    )
    return spread(advantages, outcome, batch)


def batch_scaled(
    outcome: Outcome, scores: Scores, batch: Batch, *, eps: float
) -> jax.Array:
    """Reward centred in its group and scaled by the spread of the whole step, [B, T].

    Args:
        outcome: [P, G] rewards and places.
        scores: not used.
        batch: [B, T] rows.
        eps: added to the standard deviation; 1e-4 in TRL.

    Source: see advantages.scale_by_batch.
    """
    advantages = scale_by_batch(outcome.reward, outcome.valid, eps=eps)
    return spread(advantages, outcome, batch)


def token_whitened(
    outcome: Outcome, scores: Scores, batch: Batch, *, eps: float
) -> jax.Array:
    """Group-centred reward, then whitened over all sampled tokens of the step.

        A_t = (a_t - mean_t a) / sqrt(var_t a + eps),  a = r - group mean, ddof 1

    Args:
        outcome: [P, G] rewards and places.
        scores: not used.
        batch: [B, T] rows.
        eps: added to the variance; 1e-8 in verl.

    Returns:
        [B, T] advantages, exactly 0 if every group's rewards are equal. Tokens of a
        sample with more tokens weigh more in both statistics.

    Source: REINFORCE++ baseline (arXiv:2501.03262).
    """
    centered = _per_group(center_group, outcome, batch)
    return _standardize(centered, batch.mask, eps=eps)


def per_reward_normalized(
    outcome: Outcome,
    scores: Scores,
    batch: Batch,
    *,
    weights: tuple[float, ...],
    eps: float,
) -> jax.Array:
    """Weighted sum of the group-normalised components of the reward, [B, T].

    Args:
        outcome: [P, G] places, and components [R, P, G] of the reward.
        scores: not used.
        batch: [B, T] rows.
        weights: R factors.
        eps: added to each standard deviation.

    Raises:
        ValueError: the outcome has no components.

    Source: see advantages.normalize_each_reward.
    """
    if outcome.components is None:
        raise ValueError("per_reward_normalized needs outcome.components [R, P, G]")
    advantages = jax.vmap(
        lambda c, v: normalize_each_reward(c, v, weights=weights, eps=eps),
        in_axes=(1, 0),
    )(outcome.components, outcome.valid)
    return spread(advantages, outcome, batch)


def entropy_scaled(
    outcome: Outcome, scores: Scores, batch: Batch, *, eps: float, alpha: float
) -> jax.Array:
    """Group-normalised reward, larger at tokens of more than usual entropy, [B, T].

    Args:
        outcome: [P, G] rewards and places.
        scores: entropy of each token, nats.
        batch: [B, T] rows.
        eps: added to the group's standard deviation.
        alpha: weight of the entropy; 0.2 in AEPO.

    Source: see scale_by_entropy.
    """
    advantages = group_normalized(outcome, scores, batch, eps=eps)
    return scale_by_entropy(advantages, scores.entropy, batch.mask, alpha=alpha)


def scale_by_entropy(
    advantages: jax.Array, entropy: jax.Array, mask: jax.Array, *, alpha: float
) -> jax.Array:
    """Advantages times 1 + alpha z, z the standardised entropy of the token.

    Args:
        advantages: [B, T].
        entropy: [B, T] nats.
        mask: [B, T] bool; mean and standard deviation (ddof 1) are over it.
        alpha: weight of the entropy.

    Returns:
        [B, T]; 0 where masked, unchanged if all entropies are equal.

    Source: AEPO (arXiv:2510.14545), entropy-aware advantage.
    """
    z = _standardize(jax.lax.stop_gradient(entropy), mask, eps=1e-16)
    return jnp.where(mask, advantages, 0.0) * (1.0 + alpha * z)


def spread(per_sample: jax.Array, outcome: Outcome, batch: Batch) -> jax.Array:
    """Gives each sampled token the value of its sample.

    Args:
        per_sample: [P, G], 0 for invalid samples.
        outcome: where each sample lies.
        batch: [B, T] rows.

    Returns:
        [B, T]; 0 where mask is False.
    """
    num_rows, length = batch.mask.shape
    kept = jnp.where(outcome.valid, per_sample, 0.0)
    segment = jnp.where(outcome.valid, outcome.segment, 0)
    table = jnp.zeros((num_rows, length + 1), kept.dtype)
    table = table.at[outcome.row, segment].add(kept)
    return jnp.where(batch.mask, to_tokens(table, batch.segment_ids), 0.0)


def collect(per_segment: jax.Array, outcome: Outcome) -> jax.Array:
    """The value of each sample's segment: [B, T + 1] to [P, G]; 0 where invalid."""
    values = per_segment[outcome.row, outcome.segment]
    return jnp.where(outcome.valid, values, jnp.zeros((), values.dtype))


def _per_group(
    advantage: Callable[..., jax.Array], outcome: Outcome, batch: Batch
) -> jax.Array:
    """An advantage function without options, applied to each prompt's group."""
    per_sample = jax.vmap(advantage)(outcome.reward, outcome.valid)
    return spread(per_sample, outcome, batch)


def _standardize(values: jax.Array, mask: jax.Array, *, eps: float) -> jax.Array:
    """(x - mean) / sqrt(var + eps) over the mask, ddof 1; 0 if masked or constant."""
    values = jnp.where(mask, at_least_float32(values), 0.0)
    count = jnp.sum(mask)
    centered = jnp.where(mask, values - jnp.sum(values) / jnp.maximum(count, 1), 0.0)
    variance = jnp.sum(jnp.square(centered)) / jnp.maximum(count - 1, 1)
    low = jnp.min(jnp.where(mask, values, jnp.inf))
    high = jnp.max(jnp.where(mask, values, -jnp.inf))
    return jnp.where(low < high, centered / jnp.sqrt(variance + eps), 0.0)
