"""Log-probability and entropy of each token; the only place that shifts by one.

Logits and hidden states at position t - 1 predict token t. Everything returned here is
about token t at index t; position 0 is predicted by nothing and gets 0.
"""

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from agentic_jax.losses.projection import Cut, project
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
    row_spec: PartitionSpec | None = None,
    head_spec: PartitionSpec | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Same as token_logprobs and token_entropy of hidden @ head, block by block.

    The vocabulary is cut into ceil(T / chunk) blocks, so that no more logits exist at
    once than those of `chunk` tokens per row, in the backward pass too, where they are
    made again.

    Args:
        hidden: [B, T, D] final hidden states, any float dtype; products are in it.
        head: [D, V] output projection, any float dtype, which is that of its gradient
            too; float32 master weights need no copy of another dtype.
        tokens: [B, T] int32.
        temperature: the sampling temperature, above 0.
        chunk: at least 1.
        row_spec: how [B, T] arrays lie on the mesh of jax.set_mesh. With it, devices
            exchange [B, T] sums and blocks of the head, never logits. None leaves
            placement to the compiler.
        head_spec: how the head lies there; V may be cut, and D over axes that cut
            rows or tokens.

    Returns:
        logprobs [B, T] and entropy [B, T] in nats, float32 (float64 for float64
        inputs); 0 at position 0.

    Raises:
        ValueError: chunk below 1, or tokens that are not [B, T].
    """
    if chunk < 1:
        raise ValueError(f"chunk is {chunk}; at least one token per chunk is needed")
    check_same_shape(hidden_without_width=hidden[..., 0], tokens=tokens)
    length = tokens.shape[1]
    cut = Cut(
        temperature=temperature,
        num_blocks=-(-length // chunk),
        row_axes=_axes(row_spec),
        word_axes=_axes(head_spec)[1],
        width_axes=_axes(head_spec)[0],
    )
    # Shift: what predicts token t comes to stand at index t.
    previous = jnp.pad(hidden[:, :-1], ((0, 0), (1, 0), (0, 0)))
    logprobs, entropy = project(previous, head.T, tokens, cut)
    is_first = jnp.arange(length)[None, :] == 0
    return jnp.where(is_first, 0.0, logprobs), jnp.where(is_first, 0.0, entropy)


def _axes(spec: PartitionSpec | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The mesh axes of both dimensions of a matrix."""
    entries = (*(spec or ()), None, None)[:2]
    return tuple((e,) if isinstance(e, str) else tuple(e or ()) for e in entries)


def _entropy(scaled: jax.Array) -> jax.Array:
    """[..., V] logits to [...] entropy; a token of probability 0 contributes 0."""
    logprobs = jax.nn.log_softmax(scaled)
    possible = jnp.isfinite(logprobs)
    safe = jnp.where(possible, logprobs, 0.0)
    return -jnp.sum(jnp.exp(safe) * safe, axis=-1, where=possible)
