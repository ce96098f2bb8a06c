"""Advantages of the samples of one prompt, from their rewards.

Each function takes the rewards of one group and which of them are valid, any one shape,
and returns that shape; vmap it over prompts. Invalid members enter no statistic and get
0. A group with fewer than two valid members gets 0. No gradient flows.
"""

import jax
import jax.numpy as jnp

from agentic_jax.losses.shapes import at_least_float32, check_same_shape


def normalize_group(
    rewards: jax.Array, valid: jax.Array, *, eps: float, ddof: int = 1
) -> jax.Array:
    """Rewards of a group with mean 0 and standard deviation 1.

        A_i = (r_i - mean) / (std + eps)

    Args:
        rewards: [...] of one group.
        valid: [...] bool.
        eps: added to the standard deviation; 1e-6 in verl, 1e-4 in TRL, unstated in
            the paper.
        ddof: 1 for the sample standard deviation (divides by n - 1), 0 for the
            population's.

    Returns:
        [...] in at least float32; exactly 0 if all valid rewards are equal.

    Raises:
        ValueError: shapes differ.

    Source: GRPO (arXiv:2402.03300), section 4.1.2.
    """
    centered = center_group(rewards, valid)
    count = jnp.sum(valid)
    variance = jnp.sum(jnp.square(centered)) / jnp.maximum(count - ddof, 1)
    scale = jnp.sqrt(variance) + eps
    return centered / jnp.where(scale > 0, scale, 1.0)


def center_group(rewards: jax.Array, valid: jax.Array) -> jax.Array:
    """Rewards less the mean of their group, A_i = r_i - mean.

    Args:
        rewards: [...] of one group.
        valid: [...] bool.

    Returns:
        [...] in at least float32; exactly 0 if all valid rewards are equal.

    Raises:
        ValueError: shapes differ.

    Source: Dr.GRPO (arXiv:2503.20783).
    """
    rewards = _checked(rewards, valid)
    mean = jnp.sum(rewards) / jnp.maximum(jnp.sum(valid), 1)
    return jnp.where(_is_informative(rewards, valid) & valid, rewards - mean, 0.0)


def leave_one_out(rewards: jax.Array, valid: jax.Array) -> jax.Array:
    """Each reward less the mean of the others.

        A_i = r_i - mean_{j != i} r_j = n / (n - 1) (r_i - mean)

    Args:
        rewards: [...] of one group.
        valid: [...] bool.

    Returns:
        [...] in at least float32; exactly 0 if all valid rewards are equal.

    Raises:
        ValueError: shapes differ.

    Source: RLOO (arXiv:2402.14740).
    """
    count = jnp.sum(valid)
    return center_group(rewards, valid) * (count / jnp.maximum(count - 1, 1))


def length_weighted_baseline(
    rewards: jax.Array, valid: jax.Array, lengths: jax.Array
) -> jax.Array:
    """Rewards less their length-weighted mean, the baseline of least variance.

        A_i = r_i - sum_j n_j r_j / sum_j n_j

    Args:
        rewards: [...] of one group.
        valid: [...] bool.
        lengths: [...] sampled tokens of each member.

    Returns:
        [...] in at least float32; exactly 0 if all valid rewards are equal.

    Raises:
        ValueError: shapes differ.

    Source: OPO (arXiv:2505.23585), eq. 7.
    """
    check_same_shape(rewards=rewards, lengths=lengths)
    rewards = _checked(rewards, valid)
    lengths = jnp.where(valid, lengths, 0).astype(rewards.dtype)
    baseline = jnp.sum(rewards * lengths) / jnp.maximum(jnp.sum(lengths), 1)
    return jnp.where(_is_informative(rewards, valid) & valid, rewards - baseline, 0.0)


def scale_by_batch(rewards: jax.Array, valid: jax.Array, *, eps: float) -> jax.Array:
    """Centred per group, then divided by the standard deviation of the whole step.

    Args:
        rewards: [P, G] of all groups.
        valid: [P, G] bool.
        eps: added to the standard deviation; 1e-4 in TRL.

    Returns:
        [P, G] in at least float32; 0 in groups whose valid rewards are equal.

    Raises:
        ValueError: shapes differ.

    Source: TRL's scale_rewards="batch" (arXiv:2508.08221).
    """
    centered = jax.vmap(center_group)(rewards, valid)
    rewards = _checked(rewards, valid)
    count = jnp.sum(valid)
    mean = jnp.sum(rewards) / jnp.maximum(count, 1)
    squares = jnp.where(valid, jnp.square(rewards - mean), 0.0)
    scale = jnp.sqrt(jnp.sum(squares) / jnp.maximum(count - 1, 1)) + eps
    return centered / jnp.where(scale > 0, scale, 1.0)


def normalize_each_reward(
    components: jax.Array, valid: jax.Array, *, weights: tuple[float, ...], eps: float
) -> jax.Array:
    """Weighted sum of advantages, each normalised by its own reward's spread.

        A_i = sum_k w_k (r_ki - mean_k) / (std_k + eps)

    Args:
        components: [R, ...] R rewards of one group.
        valid: [...] bool.
        weights: R factors.
        eps: added to each standard deviation.

    Returns:
        [...] in at least float32; a reward that is equal for all adds 0.

    Raises:
        ValueError: the number of weights is not R, or shapes differ.

    Source: GDPO (arXiv:2601.05242), without its final batch normalisation.
    """
    if len(weights) != components.shape[0]:
        raise ValueError(f"{len(weights)} weights for {components.shape[0]} rewards")
    parts = [
        weight * normalize_group(reward, valid, eps=eps)
        for weight, reward in zip(weights, components, strict=True)
    ]
    return sum(parts[1:], start=parts[0])


def _checked(rewards: jax.Array, valid: jax.Array) -> jax.Array:
    """Rewards without gradient, 0 where invalid (NaN there does not spread)."""
    check_same_shape(rewards=rewards, valid=valid)
    rewards = jax.lax.stop_gradient(at_least_float32(rewards))
    return jnp.where(valid, rewards, 0.0)


def _is_informative(rewards: jax.Array, valid: jax.Array) -> jax.Array:
    """[] bool: two valid rewards differ. Decided exactly, not by a rounded mean."""
    low = jnp.min(jnp.where(valid, rewards, jnp.inf))
    high = jnp.max(jnp.where(valid, rewards, -jnp.inf))
    return low < high
