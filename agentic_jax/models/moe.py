"""Mixtures of gated experts that drop no token, over the mesh axis `expert`."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from agentic_jax.models.config import ModelConfig
from agentic_jax.models.mlp import linear
from agentic_jax.sharding import ROWS

_SPECS = {  # Of each kernel [E, ...]: fsdp is gathered, expert and tensor stay cut.
    "gate": P("expert", None, "tensor"),
    "up": P("expert", None, "tensor"),
    "down": P("expert", "tensor", None),
}


class MoeMlp(nn.Module):
    """The weighted sum of what its experts_per_token likeliest experts make of a token.

        out = sum_e w_e down_e(silu(gate_e(x)) * up_e(x))

    Source: Qwen3 (arXiv:2505.09388), section 2, as its published configs have it.
    """

    config: ModelConfig

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """What the block adds to the residual stream, [B, T, D] from [B, T, D].

        Under jax.set_mesh, a device computes the experts that it holds, for the rows
        of its whole group along `expert`, and gets back the sums of its own rows.
        """
        config = self.config
        logits = linear(config, config.num_experts, name="router")(x)
        weights, chosen = top_k_routing(
            logits, k=config.experts_per_token, normalize=config.normalize_experts
        )
        experts = self.param("experts", _init_experts, config)
        kernels = {
            name: experts[name]["kernel"].astype(config.dtype) for name in _SPECS
        }
        weights = weights.astype(config.dtype)
        if self.is_initializing() or jax.sharding.get_abstract_mesh().empty:
            return _sum_of_experts(x, weights, chosen, kernels, first=0)
        spread = jax.shard_map(
            _sum_over_devices,
            in_specs=(P(*ROWS, None), P(*ROWS, None), P(*ROWS, None), _SPECS),
            out_specs=P(*ROWS, None),
            check_vma=False,
        )
        return spread(x, weights, chosen, kernels)


def top_k_routing(
    logits: jax.Array, *, k: int, normalize: bool
) -> tuple[jax.Array, jax.Array]:
    """Weights and ids of each token's k likeliest experts, two [..., k].

    Args:
        logits: [..., E] of the router.
        k: experts per token.
        normalize: divides the k probabilities by their sum.

    Returns:
        float32 (or float64) softmax probabilities over all E, the largest first, and
        int32 expert ids. Of equals, the lower id comes first.
    """
    wide = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    weights, chosen = jax.lax.top_k(jax.nn.softmax(wide, axis=-1), k)
    if normalize:
        weights = weights / weights.sum(-1, keepdims=True)
    return weights, chosen


def _sum_of_experts(
    x: jax.Array,
    weights: jax.Array,
    chosen: jax.Array,
    kernels: Mapping[str, jax.Array],
    *,
    first: jax.Array | int,
) -> jax.Array:
    """[B, T, D] sums over the experts first ... first + len(kernels) - 1 only.

    Tokens are sorted by expert and multiplied in groups of whatever size there is.
    """
    num_experts, k, width = len(kernels["gate"]), chosen.shape[-1], x.shape[-1]
    ids = chosen.reshape(-1) - first
    here = (ids >= 0) & (ids < num_experts)
    ids = jnp.where(here, ids, num_experts)  # The others' tokens come last.
    order = jnp.argsort(ids)
    sizes = jnp.bincount(ids, length=num_experts)
    # Rows beyond the groups may hold anything after a grouped product.
    mine = here[order][:, None]
    grouped = partial(jax.lax.ragged_dot, group_sizes=sizes)
    rows = jnp.where(mine, jnp.repeat(x.reshape(-1, width), k, axis=0)[order], 0)
    hidden = jax.nn.silu(grouped(rows, kernels["gate"])) * grouped(rows, kernels["up"])
    out = grouped(jnp.where(mine, hidden, 0), kernels["down"])
    out = jnp.where(mine, out * weights.reshape(-1)[order][:, None], 0)
    back = out[jnp.argsort(order)]
    return back.reshape(-1, k, width).sum(1).reshape(x.shape)


def _sum_over_devices(
    x: jax.Array, weights: jax.Array, chosen: jax.Array, kernels: Mapping[str, Any]
) -> jax.Array:
    """The sum over all experts, seen from one device: its rows in, its rows out."""
    gather = partial(jax.lax.all_gather, axis_name="expert", axis=0, tiled=True)
    first = jax.lax.axis_index("expert") * len(kernels["gate"])
    part = _sum_of_experts(
        gather(x), gather(weights), gather(chosen), kernels, first=first
    )
    part = jax.lax.psum(part, "tensor")
    return jax.lax.psum_scatter(part, "expert", scatter_dimension=0, tiled=True)


def _init_experts(key: jax.Array, config: ModelConfig) -> Any:
    """{gate, up, down}/kernel [E, inputs, outputs], scaled as `linear` does."""
    width, inner = config.width, config.mlp_width
    plan = {
        "gate": (width, inner, 1.0),
        "up": (width, inner, 1.0),
        "down": (inner, width, 1.0 / (2 * config.num_layers)),
    }

    def init(key: jax.Array, inputs: int, outputs: int, scale: float) -> jax.Array:
        draw = nn.initializers.variance_scaling(scale, "fan_in", "normal", batch_axis=0)
        return draw(key, (config.num_experts, inputs, outputs), config.param_dtype)

    keys = jax.random.split(key, len(plan))
    return {
        name: {"kernel": init(key, *sizes)}
        for key, (name, sizes) in zip(keys, plan.items(), strict=True)
    }
