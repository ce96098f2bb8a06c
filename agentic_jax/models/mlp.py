"""The gated feed-forward block, and the two layers that every block is made of."""

from collections.abc import Sequence

import flax.linen as nn
import jax

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
    return nn.DenseGeneral(
        features,
        axis=axis,
        use_bias=bias,
        dtype=config.dtype,
        param_dtype=config.param_dtype,
        kernel_init=nn.initializers.variance_scaling(scale, "fan_in", "normal"),
        name=name,
    )


def rms_norm(config: ModelConfig, *, name: str) -> nn.RMSNorm:
    """RMS norm over the last dimension with a learned scale (arXiv:1910.07467)."""
    return nn.RMSNorm(
        epsilon=config.rms_norm_eps,
        dtype=config.dtype,
        param_dtype=config.param_dtype,
        name=name,
    )
