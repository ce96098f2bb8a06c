"""Sampling one token per row: temperature, top-k, top-p, and randomness by seed."""

import jax
import jax.numpy as jnp


def position_uniforms(seeds: jax.Array, positions: jax.Array) -> jax.Array:
    """One number in [0, 1) per row that depends on its seed and position alone.

    Args:
        seeds: [B, 2] uint32, the high and low half of a 64-bit seed.
        positions: [B] int32 index of the token to be sampled within its sequence.
    """

    def draw(seed, position):
        key = jax.random.wrap_key_data(seed, impl="threefry2x32")
        return jax.random.uniform(jax.random.fold_in(key, position))

    return jax.vmap(draw)(seeds, positions)


def sample(
    logits: jax.Array,
    uniforms: jax.Array,
    temperature: jax.Array,
    top_p: jax.Array,
    top_k: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Tokens by inverting the cumulative distribution, and their log-probabilities.

        token = min {v : sum_{w <= v} p_w > u sum_w p_w},   p = softmax(logits / T)

    One uniform number a row takes the place of noise over the vocabulary. Of several
    tokens as likely as the last one kept by top_k or top_p, all are kept.

    Args:
        logits: [B, V]; computed in at least float32.
        uniforms: [B] in [0, 1).
        temperature: [B]; 0 takes the most likely token.
        top_p: [B] in (0, 1]: keeps the fewest most likely tokens of that mass.
        top_k: [B] int32: keeps the k most likely tokens; 0 keeps all. Applied before
            top_p, whose mass is of what top_k kept.

    Returns:
        tokens [B] int32 and log-probabilities [B] in nats: log-softmax of logits / T
        over the whole vocabulary, whatever top_k and top_p left out; T counts as 1
        where it is 0. Logits with a NaN give a NaN log-probability.
    """
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    greedy = temperature == 0
    scaled = logits / jnp.where(greedy, 1.0, temperature)[:, None]
    top = jnp.max(scaled, axis=-1)
    weights = jnp.exp(scaled - top[:, None])
    log_total = top + jnp.log(jnp.sum(weights, axis=-1))
    kept = jax.lax.cond(
        jnp.any(~greedy & ((top_p < 1) | (top_k > 0))),
        lambda: jnp.where(weights >= _threshold(weights, top_p, top_k), weights, 0.0),
        lambda: weights,
    )
    drawn = _invert_cumulative(kept, uniforms)
    tokens = jnp.where(greedy, jnp.argmax(logits, axis=-1), drawn).astype(jnp.int32)
    chosen = jnp.take_along_axis(scaled, tokens[:, None], axis=-1)[:, 0]
    return tokens, chosen - log_total


def top_logprobs(logits: jax.Array, temperature: jax.Array, *, top: int) -> jax.Array:
    """Log-probabilities of the likeliest tokens, falling; logits and T as in `sample`.

    Args:
        logits: [B, V].
        temperature: [B].
        top: how many, at most V.

    Returns:
        [B, top] nats.
    """
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    scaled = logits / jnp.where(temperature == 0, 1.0, temperature)[:, None]
    likeliest, _ = jax.lax.top_k(scaled, top)
    return likeliest - jax.nn.logsumexp(scaled, axis=-1, keepdims=True)


def _threshold(weights: jax.Array, top_p: jax.Array, top_k: jax.Array) -> jax.Array:
    """[B, 1] the least weight that top_k and top_p keep; 0 where they are off."""
    size = weights.shape[-1]
    ordered = -jnp.sort(-weights, axis=-1)
    k = jnp.where(top_k > 0, jnp.minimum(top_k, size), size)
    ordered = jnp.where(jnp.arange(size)[None, :] < k[:, None], ordered, 0.0)
    mass = jnp.cumsum(ordered, axis=-1)
    enough = mass - ordered < top_p[:, None] * mass[:, -1:]
    count = jnp.where(top_p < 1, jnp.sum(enough, axis=-1), size)
    last = jnp.clip(jnp.minimum(count, k) - 1, 0, size - 1)
    least = jnp.take_along_axis(ordered, last[:, None], axis=-1)
    return jnp.where(((top_p < 1) | (top_k > 0))[:, None], least, 0.0)


def _invert_cumulative(weights: jax.Array, uniforms: jax.Array) -> jax.Array:
    """[B] the first index whose cumulative weight exceeds uniforms * total.

    In two steps of about sqrt(V) sums each: the block, then the token within it.
    """
    rows, size = weights.shape
    block = 1 << max(size.bit_length() // 2, 1)
    num_blocks = -(-size // block)
    padded = jnp.pad(weights, ((0, 0), (0, num_blocks * block - size)))
    blocks = padded.reshape(rows, num_blocks, block)
    sums = jnp.sum(blocks, axis=-1)
    target = uniforms * jnp.sum(sums, axis=-1)
    index = _first_above(sums, target)
    before = jnp.sum(sums, axis=-1, where=jnp.arange(num_blocks)[None] < index[:, None])
    inside = jnp.take_along_axis(blocks, index[:, None, None], axis=1)[:, 0]
    return index * block + _first_above(inside, target - before)


def _first_above(weights: jax.Array, target: jax.Array) -> jax.Array:
    """[B] the first index with a weight whose cumulative sum exceeds target [B].

    The last index with a weight where rounding leaves none.
    """
    positive = weights > 0
    above = positive & (jnp.cumsum(weights, axis=-1) > target[:, None])
    last = weights.shape[-1] - 1 - jnp.argmax(positive[:, ::-1], axis=-1)
    return jnp.where(jnp.any(above, axis=-1), jnp.argmax(above, axis=-1), last)
