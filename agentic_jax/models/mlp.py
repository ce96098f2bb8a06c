"""The gated feed-forward block, and the layers that every block is made of."""

from collections.abc import Sequence
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from agentic_jax.models.config import ModelConfig


class GatedMlp(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x)) (arXiv:2002.05202)."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """What the block adds to the residual stream, [B, T, D] from [B, T, D]."""
        config = self.config
        gate = linear(config, config.mlp_width, name="gate")(x)
        up = linear(config, config.mlp_width, name="up")(x)
        down = linear(config, config.width, name="down", into_residual=True)
        return down(jax.nn.silu(gate) * up)


def linear(
    config: ModelConfig,
    features: int | Sequence[int],
    *,
    name: str,
    bias: bool = False,
    axis: int | Sequence[int] = -1,
    into_residual: bool = False,
) -> nn.DenseGeneral:
    """A projection, initialised so that its output has the variance of its input.

    It has an adapter too where config.lora names it.

    Args:
        config: dtypes and depth.
        features: output dimensions, which replace the contracted ones.
        name: of its parameters `kernel` and `bias`.
        bias: whether it has one.
        axis: input dimensions that are contracted.
        into_residual: divides the initial variance by 2 L, the number of blocks that
            add to the residual stream (GPT-2).
    """
    scale = 1.0 / (2 * config.num_layers) if into_residual else 1.0
    make = nn.DenseGeneral
    if config.lora and f"{name}_proj" in config.lora.targets:
        make = partial(LoraDense, rank=config.lora.rank, scale=config.lora.scale)
    return make(
        features=features,
        axis=axis,
        use_bias=bias,
        dtype=config.dtype,
        param_dtype=config.param_dtype,
        kernel_init=nn.initializers.variance_scaling(scale, "fan_in", "normal"),
        name=name,
    )


class LoraDense(nn.DenseGeneral):
    """A projection and beside it the product of two thin matrices.

        y = x W + b + scale (x A) B

    `lora_a` [inputs..., rank] starts uniform, as PEFT has it, and `lora_b`
    [rank, outputs...] at zero: before the first update, y is the projection's own,
    bit for bit.

    Attributes:
        rank: of the product.
        scale: alpha / rank.
    """

    rank: int = 1
    scale: float = 1.0

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., outputs] from [..., inputs]."""
        axes = self.axis if isinstance(self.axis, Sequence) else (self.axis,)
        sizes = tuple(x.shape[axis] for axis in axes)
        ends = (
            self.features if isinstance(self.features, Sequence) else (self.features,)
        )
        inputs = tuple(range(len(sizes)))
        uniform = nn.initializers.variance_scaling(
            1 / 3, "fan_in", "uniform", in_axis=inputs, out_axis=-1
        )  # Between -1 / sqrt(inputs) and its opposite.
        kind = self.param_dtype
        a = self.param("lora_a", uniform, (*sizes, self.rank), kind)
        b = self.param("lora_b", nn.initializers.zeros, (self.rank, *ends), kind)
        x = x.astype(self.dtype)
        thin = jnp.tensordot(x, a.astype(self.dtype), axes=(axes, inputs))
        added = jnp.tensordot(thin, b.astype(self.dtype), axes=1)
        return super().__call__(x) + self.scale * added


def rms_norm(config: ModelConfig, *, name: str) -> nn.RMSNorm:
    """RMS norm over the last dimension with a learned scale (arXiv:1910.07467)."""
    return nn.RMSNorm(
        epsilon=config.rms_norm_eps,
        dtype=config.dtype,
        param_dtype=config.param_dtype,
        name=name,
    )
