"""Llama, Qwen2, Qwen3 and Qwen3-MoE: one decoder, for whole rows or over a cache.

Parameters, the same whether layers are scanned or unrolled, with a leading L under
`layers`:

    embed/embedding [V, D]                 layers/mlp_norm/scale [L, D]
    layers/attention_norm/scale [L, D]     layers/mlp/{gate,up}/kernel [L, D, F]
    layers/attention/q/kernel [L, D, H, Dh]       layers/mlp/down/kernel [L, F, D]
    layers/attention/{k,v}/kernel [L, D, KV, Dh]  norm/scale [D]
    layers/attention/o/kernel [L, H, Dh, D]       head/kernel [D, V], untied only
    layers/attention/{q,k,v,o}/bias, {q,k}_norm/scale [L, Dh], where the family has them

With experts, layers/mlp holds router/kernel [L, D, E] and experts/{gate,up}/kernel
[L, E, D, F] and experts/down/kernel [L, E, F, D]. With adapters, there are lora_a and
lora_b beside the kernels that config.lora names.
"""

from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from agentic_jax.models.attention import (
    Attend,
    Attention,
    attention_mask,
    plain_attention,
    rotary_cos_sin,
)
from agentic_jax.models.attention_kernels import make_attend
from agentic_jax.models.cache import KVCache, cached_attention
from agentic_jax.models.config import ModelConfig
from agentic_jax.models.mlp import GatedMlp, rms_norm
from agentic_jax.models.moe import MoeMlp
from agentic_jax.sharding import FSDP, ROWS, constrain

Params = Mapping[str, Any]


class Layer(nn.Module):
    """Attention, then the gated block or experts, each on the normed stream."""

    config: ModelConfig

    @nn.compact
    def __call__(
        self,
        hidden: jax.Array,
        cos_sin: tuple[jax.Array, jax.Array],
        attend: Attend,
    ) -> tuple[jax.Array, Any]:
        """The stream [B, T, D] after this layer, and attend's second result."""
        config = self.config
        normed = rms_norm(config, name="attention_norm")(hidden)
        added, aux = Attention(config, name="attention")(normed, cos_sin, attend)
        hidden = hidden + added
        normed = rms_norm(config, name="mlp_norm")(hidden)
        mlp = MoeMlp if config.num_experts else GatedMlp
        return hidden + mlp(config, name="mlp")(normed), aux


class Transformer(nn.Module):
    """The decoder without its output projection, so that losses can chunk that."""

    config: ModelConfig

    @nn.compact
    def __call__(
        self, tokens: jax.Array, positions: jax.Array, segment_ids: jax.Array
    ) -> jax.Array:
        """Final-normed hidden states, [B, T, D] in config.dtype.

        Args:
            tokens: [B, T] int32 ids below vocab_size.
            positions: [B, T] int32 position within the segment, 0 in padding.
            segment_ids: [B, T] int32 from 1; 0 is padding. A token sees the tokens of
                its own segment up to itself. States of padding are finite and mean
                nothing.
        """
        config = self.config
        embed = self.param("embed", _init_embed, config)
        layers = self.param("layers", _init_layers, config)
        if not config.tie_embeddings:
            self.param("head", _init_head, config)  # Applied by `head`.
        mesh = jax.sharding.get_abstract_mesh()
        alone = self.is_initializing() or mesh.empty or mesh.size == 1
        look_up = _look_up if alone else _look_up_on_mesh
        hidden = look_up(embed, tokens, config)
        cos_sin = rotary_cos_sin(positions, config)
        # Initialization has rows of one token, which not every kernel takes.
        name = "dense" if self.is_initializing() else config.attention
        attend_rows = _attend_rows(name, segment_ids, positions)

        def block(hidden, layer_params):
            def attend(q, k, v):
                return attend_rows(q, k, v), None

            hidden = constrain(hidden, ROWS)
            return _apply_layer(config, layer_params, hidden, cos_sin, attend)

        block = _rematerialized(block, config)
        if config.layer_loop == "scan":
            hidden, _ = jax.lax.scan(block, hidden, layers)
        else:
            for layer_params in unstack(layers, config.num_layers):
                hidden, _ = block(hidden, layer_params)
        return rms_norm(config, name="norm")(constrain(hidden, ROWS))


def head(params: Params, config: ModelConfig) -> jax.Array:
    """The output projection [D, V] as it is stored; logits are hidden @ head.

    A tied head is the transposed embedding, so gradients reach the embedding twice.
    """
    if config.tie_embeddings:
        return params["embed"]["embedding"].T
    return params["head"]["kernel"]


def forward_cached(
    params: Params,
    config: ModelConfig,
    tokens: jax.Array,
    positions: jax.Array,
    cache: KVCache,
) -> tuple[jax.Array, KVCache]:
    """Hidden states of new tokens that see what the cache holds, and the grown cache.

    Args:
        params: as Transformer.init makes them, or with `layers` already unstacked,
            which spares a copy of every weight at every call.
        config: its layer_loop and remat are not used; layers are unrolled.
        tokens: [B, T] int32.
        positions: [B, T] int32; token (b, t) is stored at this index of row b and sees
            the indices up to it. At or beyond the cache's length it is padding:
            nothing is stored.
        cache: of B rows.

    Returns:
        [B, T, D] final-normed hidden states in config.dtype, and the new cache.
    """
    cos_sin = rotary_cos_sin(positions, config)
    hidden = _look_up(params["embed"], tokens, config)
    layers = params["layers"]
    if isinstance(layers, Mapping):
        layers = unstack(layers, config.num_layers)
    keys, values = [], []
    for layer_params, layer_k, layer_v in zip(layers, cache.k, cache.v, strict=True):

        def attend(q, k, v, layer_k=layer_k, layer_v=layer_v):
            out, *stored = cached_attention(q, k, v, layer_k, layer_v, positions)
            return out, stored

        hidden, (layer_k, layer_v) = _apply_layer(
            config, layer_params, hidden, cos_sin, attend
        )
        keys.append(layer_k)
        values.append(layer_v)
    norm = rms_norm(config, name=None)
    hidden = norm.apply({"params": params["norm"]}, hidden)
    return hidden, KVCache(k=tuple(keys), v=tuple(values))


def unstack(layers: Params, num_layers: int) -> tuple[Params, ...]:
    """One parameter tree per layer, from one with a leading axis of num_layers.

    Splitting, unlike indexing, has a concatenation as its gradient: indexing would pad
    and add a whole stack for each layer.
    """
    leaves, treedef = jax.tree.flatten(layers)
    parts = [jax.lax.split(leaf, (1,) * num_layers, axis=0) for leaf in leaves]
    return tuple(
        jax.tree.unflatten(treedef, [jnp.squeeze(part, 0) for part in layer])
        for layer in zip(*parts, strict=True)
    )


def _init_embed(key: jax.Array, config: ModelConfig) -> Params:
    shape, dtype = (config.vocab_size, config.width), config.param_dtype
    return {"embedding": nn.initializers.normal(0.02)(key, shape, dtype)}


def _init_head(key: jax.Array, config: ModelConfig) -> Params:
    shape, dtype = (config.width, config.vocab_size), config.param_dtype
    return {"kernel": nn.initializers.normal(0.02)(key, shape, dtype)}


def _look_up(embed: Params, tokens: jax.Array, config: ModelConfig) -> jax.Array:
    """[B, T, D] embeddings in config.dtype.

    Rows are taken before they are rounded, so that the gradient of a frequent token is
    a sum in the table's own dtype.
    """
    return jnp.take(embed["embedding"], tokens, axis=0).astype(config.dtype)


def _look_up_on_mesh(
    embed: Params, tokens: jax.Array, config: ModelConfig
) -> jax.Array:
    """_look_up under jax.set_mesh, where the table stays cut.

    A device looks up its words and its part of the width for the rows of all devices
    that share the width, and they exchange what they found. A gathered table, and its
    gradient before that is scattered, would take 4 V D bytes each on every device.
    """

    def local(table: jax.Array, tokens: jax.Array) -> jax.Array:
        tokens = jax.lax.all_gather(tokens, FSDP, axis=0, tiled=True)
        words = tokens - jax.lax.axis_index("tensor") * len(table)
        here = (words >= 0) & (words < len(table))
        found = _look_up({"embedding": table}, jnp.where(here, words, 0), config)
        found = jax.lax.psum(jnp.where(here[..., None], found, 0), "tensor")
        return jax.lax.all_to_all(found, FSDP, split_axis=0, concat_axis=2, tiled=True)

    spread = jax.shard_map(
        local,
        in_specs=(P("tensor", FSDP), ROWS),
        out_specs=P(*ROWS, None),
        check_vma=False,
    )
    return spread(embed["embedding"], tokens)


def _attend_rows(name: str, segment_ids: jax.Array, positions: jax.Array) -> Callable:
    """(q, k, v) -> attended [B, T, H, Dh], each token within its segment."""
    if name != "dense":
        return make_attend(name, segment_ids)
    mask = attention_mask(segment_ids, positions)
    return lambda q, k, v: plain_attention(q, k, v, mask)


def _apply_layer(config, layer_params, hidden, cos_sin, attend):
    layer = Layer(config, parent=None)  # Unbound: its parameters are passed in.
    return layer.apply({"params": layer_params}, hidden, cos_sin, attend)


def _init_layers(key: jax.Array, config: ModelConfig) -> Params:
    """Independently drawn parameters of every layer, stacked."""
    hidden = jnp.zeros((1, 1, config.width), config.dtype)
    cos_sin = rotary_cos_sin(jnp.zeros((1, 1), jnp.int32), config)

    def init_one(key):
        layer = Layer(config, parent=None)
        return layer.init(key, hidden, cos_sin, lambda q, k, v: (q, None))["params"]

    return jax.vmap(init_one)(jax.random.split(key, config.num_layers))


def _rematerialized(block: Callable, config: ModelConfig) -> Callable:
    """The block, with what its backward pass keeps set by config.remat."""
    if config.remat == "none":
        return block
    policies = jax.checkpoint_policies
    keep = {
        "full": policies.nothing_saveable,
        "dots": policies.dots_with_no_batch_dims_saveable,
    }
    # Inside a scan the compiler cannot merge the recomputation with the first pass.
    prevent_cse = config.layer_loop == "unroll"
    return jax.checkpoint(block, policy=keep[config.remat], prevent_cse=prevent_cse)
