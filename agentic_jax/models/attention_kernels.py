"""Attention that never holds all its weights, by the names of ModelConfig.attention.

Each takes q [B, T, H, Dh], k and v [B, S, KV, Dh], the segment ids of queries [B, T]
and of keys [B, S], and the index in its row of the first query: keys are whole rows,
queries may be a stretch of them. A query sees the keys of its own segment up to its own
index, which packing makes the same as up to its own position. Softmax is in float32.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from agentic_jax.models.attention import plain_attention
from agentic_jax.sharding import ROWS

SPLASH_BLOCKS = (512, 256, 128)  # Of tokens; the first that divides the row is taken.


def make_attend(
    name: str, segment_ids: jax.Array, *, interpret: bool = False
) -> Callable[..., jax.Array]:
    """(q, k, v) -> attended [B, T, H, Dh] over packed rows, by the kernel of that name.

    Under jax.set_mesh each device attends for its own rows, tokens and heads; over
    `sequence` it gathers the keys and values of its rows.

    Args:
        name: "chunked", "splash" or "cudnn".
        segment_ids: [B, T] int32, 0 is padding.
        interpret: runs splash attention without a TPU, slowly.
    """
    mesh = jax.sharding.get_abstract_mesh()
    parts = {"tensor": 1, "sequence": 1} if mesh.empty else mesh.shape
    length = segment_ids.shape[1]

    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        masks = None
        if name == "splash":
            split = parts["tensor"], parts["sequence"]
            masks = _splash_masks(length, q.shape[2], *split, interpret=interpret)
        kernel = {"chunked": chunked, "splash": splashed, "cudnn": cudnn}[name]

        def local(q, k, v, q_ids, k_ids, masks):
            first = 0 if mesh.empty else jax.lax.axis_index("sequence") * q.shape[1]
            options = {"masks": masks} if name == "splash" else {"first": first}
            return kernel(q, k, v, q_ids, k_ids, **options)

        if mesh.empty:
            return local(q, k, v, segment_ids, segment_ids, masks)
        rows, tokens = ROWS
        queries, keys = P(rows, tokens, "tensor"), P(rows, None, "tensor")
        mask_specs = masks and masks.manual_sharding_spec(
            NamedSharding(mesh, P("tensor", "sequence"))
        )
        spread = jax.shard_map(
            local,
            in_specs=(queries, keys, keys, ROWS, P(rows), mask_specs),
            out_specs=queries,
            check_vma=False,
        )
        return spread(q, k, v, segment_ids, segment_ids, masks)

    return attend


def chunked(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    q_ids: jax.Array,
    k_ids: jax.Array,
    *,
    first: jax.Array | int,
    chunk: int = 128,
) -> jax.Array:
    """Attention in plain JAX, `chunk` queries at a time, forwards and backwards.

    At most [B, H, chunk, S] weights exist at once; the backward pass makes them again.
    It is the reference of the other kernels, and runs everywhere.
    """
    num_rows, length = q.shape[:2]
    pad = -length % chunk

    def cut(x: jax.Array) -> jax.Array:
        """[B, T, ...] to [T / chunk, B, chunk, ...]."""
        x = jnp.pad(x, ((0, 0), (0, pad), *((0, 0),) * (x.ndim - 2)))
        return jnp.swapaxes(x.reshape(num_rows, -1, chunk, *x.shape[2:]), 0, 1)

    at = jnp.broadcast_to(first + jnp.arange(length)[None, :], q_ids.shape)

    @jax.checkpoint
    def attend(queries: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        some, ids, index = queries
        return plain_attention(some, k, v, _mask(ids, k_ids, index))

    out = jax.lax.map(attend, (cut(q), cut(q_ids), cut(at)))
    return jnp.swapaxes(out, 0, 1).reshape(num_rows, -1, *q.shape[2:])[:, :length]


def splashed(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    q_ids: jax.Array,
    k_ids: jax.Array,
    *,
    masks: Any,
) -> jax.Array:
    """Splash attention, a TPU kernel that skips blocks in which nothing is seen.

    Args:
        q, k, v, q_ids, k_ids: as for all kernels.
        masks: the kernel with the causal mask of these queries, from _splash_masks.
    """
    swapped = (jnp.swapaxes(x, 1, 2) for x in (q * q.shape[-1] ** -0.5, k, v))
    out = jax.vmap(masks)(*swapped, splash.SegmentIds(q=q_ids, kv=k_ids))
    return jnp.swapaxes(out, 1, 2).astype(q.dtype)


def _splash_masks(
    length: int, heads: int, head_parts: int, token_parts: int, *, interpret: bool
) -> Any:
    """The kernel for rows of this length, with masks that can be cut over a mesh.

    Raises:
        ValueError: a device's stretch of a row does not divide into blocks.
    """
    fits = [size for size in SPLASH_BLOCKS if (length // token_parts) % size == 0]
    if length % token_parts or not fits:
        raise ValueError(
            f"splash attention needs rows of a multiple of {SPLASH_BLOCKS[-1]} tokens "
            f"on each device, not {length} over sequence={token_parts}: change "
            "batch.row_length"
        )
    names = ("q", "kv", "q_dkv", "kv_dkv", "q_dq", "kv_dq")
    mask = splash.MultiHeadMask([splash.CausalMask((length, length))] * heads)
    return splash.make_splash_mha(
        mask,
        head_shards=head_parts,
        q_seq_shards=token_parts,
        interpret=interpret,
        block_sizes=splash.BlockSizes(**{f"block_{name}": fits[0] for name in names}),
    )


def cudnn(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    q_ids: jax.Array,
    k_ids: jax.Array,
    *,
    first: jax.Array | int,
) -> jax.Array:
    """cuDNN flash attention on an NVIDIA GPU, a row at a time.

    Segments enter it as a [T, S] bias in q's dtype, 2 T S bytes of one row: 0.5 GB at
    16,384 tokens. q, k and v must be bfloat16 or float16.
    """
    whole = q.shape[1] == k.shape[1]  # Then it skips what lies above the diagonal.
    at = jnp.broadcast_to(first + jnp.arange(q.shape[1])[None, :], q_ids.shape)

    def attend(row: tuple[jax.Array, ...]) -> jax.Array:
        q, k, v, q_ids, k_ids, index = (x[None] for x in row)
        out = jax.nn.dot_product_attention(
            *(q, k, v),
            mask=_mask(q_ids, k_ids, index)[:, None],
            is_causal=whole,
            implementation="cudnn",
        )
        return out[0]

    return jax.lax.map(attend, (q, k, v, q_ids, k_ids, at))


def _mask(q_ids: jax.Array, k_ids: jax.Array, at: jax.Array) -> jax.Array:
    """[B, T, S] bool: the query at index `at` [B, T] of its row may see the key."""
    same = q_ids[:, :, None] == k_ids[:, None, :]
    return same & (jnp.arange(k_ids.shape[1])[None, None, :] <= at[:, :, None])
