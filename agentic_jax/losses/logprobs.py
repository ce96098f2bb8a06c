"""Log-probability and entropy of each token; the only place that shifts by one.

Logits and hidden states at position t - 1 predict token t. Everything returned here is
about token t at index t; position 0 is predicted by nothing and gets 0.
"""

import jax
import jax.numpy as jnp

from agentic_jax.losses.shapes import at_least_float32, check_same_shape


def token_logprobs(
    logits: jax.Array, tokens: jax.Array, *, temperature: float
) -> jax.Array:
    """Log-probability of each token under softmax(logits / temperature).

        logprobs_t = log_softmax(logits_{t-1} / temperature)[tokens_t]

    Args:
        logits: [B, T, V] as the model gives them, any float dtype.
        tokens: [B, T] int32.
        temperature: the sampling temperature, above 0.

    Returns:
        [B, T] nats, float32 (float64 for float64 logits); 0 at position 0.

    Raises:
        ValueError: tokens are not [B, T] for these logits.
    """
    check_same_shape(logits_without_vocab=logits[..., 0], tokens=tokens)
    scaled = at_least_float32(logits[:, :-1]) / temperature
    logprobs = jax.nn.log_softmax(scaled)
    picked = jnp.take_along_axis(logprobs, tokens[:, 1:, None], axis=-1)
    return jnp.pad(picked[..., 0], ((0, 0), (1, 0)))


def token_entropy(logits: jax.Array, *, temperature: float) -> jax.Array:
    """Entropy of the distribution that each token was drawn from.

        H_t = -sum_v p_v log p_v,  p = softmax(logits_{t-1} / temperature)

    Args:
        logits: [B, T, V]; -inf forbids a token and adds nothing to the entropy.
        temperature: the sampling temperature, above 0.

    Returns:
        [B, T] nats over the whole vocabulary, float32 or float64; 0 at position 0.
    """
    scaled = at_least_float32(logits[:, :-1]) / temperature
    return jnp.pad(_entropy(scaled), ((0, 0), (1, 0)))


def chunked_logprobs_and_entropy(
    hidden: jax.Array,
    head: jax.Array,
    tokens: jax.Array,
    *,
    temperature: float,
    chunk: int,
) -> tuple[jax.Array, jax.Array]:
    """Same as token_logprobs and token_entropy of hidden @ head, chunk by chunk.

    At most [B, chunk, V] logits exist at once, in the backward pass too, where they are
    made again. Gradients of the head add up in float32.

    Args:
        hidden: [B, T, D] final hidden states, any float dtype.
        head: [D, V] output projection; it may be sharded over V under jit.
        tokens: [B, T] int32.
        temperature: the sampling temperature, above 0.
        chunk: tokens per chunk and row; T need not be a multiple.

    Returns:
        logprobs [B, T] and entropy [B, T] in nats, float32 (float64 for float64
        inputs); 0 at position 0.

    Raises:
        ValueError: chunk below 1, or tokens that are not [B, T].
    """
    if chunk < 1:
        raise ValueError(f"chunk is {chunk}; at least one token per chunk is needed")
    check_same_shape(hidden_without_width=hidden[..., 0], tokens=tokens)
    num_rows, length, width = hidden.shape
    pad = -length % chunk
    # Shift: what predicts token t comes to stand at index t.
    previous = jnp.pad(hidden[:, :-1], ((0, 0), (1, pad), (0, 0)))
    num_chunks = (length + pad) // chunk
    previous = previous.reshape(num_rows, num_chunks, chunk, width).swapaxes(0, 1)
    targets = jnp.pad(tokens, ((0, 0), (0, pad)))
    targets = targets.reshape(num_rows, num_chunks, chunk).swapaxes(0, 1)
    wide_head = at_least_float32(head)
    dtype = jnp.promote_types(hidden.dtype, jnp.float32)

    @jax.checkpoint
    def one_chunk(args: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        states, ids = args
        logits = jnp.matmul(
            states, wide_head.astype(states.dtype), preferred_element_type=dtype
        )
        scaled = logits / temperature
        # A masked sum and not a gather: it stays local if V is sharded.
        is_target = jnp.arange(scaled.shape[-1])[None, None, :] == ids[..., None]
        picked = jnp.sum(scaled, axis=-1, where=is_target)
        return picked - jax.nn.logsumexp(scaled, axis=-1), _entropy(scaled)

    chunks = jax.lax.map(one_chunk, (previous, targets))
    logprobs, entropy = (
        x.swapaxes(0, 1).reshape(num_rows, -1)[:, :length] for x in chunks
    )
    is_first = jnp.arange(length)[None, :] == 0
    return jnp.where(is_first, 0.0, logprobs), jnp.where(is_first, 0.0, entropy)


def _entropy(scaled: jax.Array) -> jax.Array:
    """[..., V] logits to [...] entropy; a token of probability 0 contributes 0."""
    logprobs = jax.nn.log_softmax(scaled)
    possible = jnp.isfinite(logprobs)
    safe = jnp.where(possible, logprobs, 0.0)
    return -jnp.sum(jnp.exp(safe) * safe, axis=-1, where=possible)
