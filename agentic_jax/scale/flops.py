"""Floating-point operations of a step, counted from shapes.

A compiler's own count takes the body of a scan once, so it cannot be used.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from agentic_jax.models.config import ModelConfig


@dataclass(frozen=True)
class Flops:
    """Operations of one pass over some rows, a multiplication and an addition being 2.

    Attributes:
        layers: products with the layers' weights.
        attention: products of queries with keys and of weights with values, of which
            causality leaves half.
        head: the output projection.
    """

    layers: float
    attention: float
    head: float

    @property
    def total(self) -> float:
        """All three."""
        return self.layers + self.attention + self.head


def forward_flops(config: ModelConfig, lengths: Sequence[int]) -> Flops:
    """Of a forward pass over trajectories of these lengths, however they are packed.

    Norms, rotations, the embedding and adapters count nothing.

    Args:
        config: of the model.
        lengths: tokens of each trajectory.
    """
    heads = config.num_heads * config.head_dim
    keys = config.num_kv_heads * config.head_dim
    blocks = max(config.experts_per_token, 1)
    weights = (
        config.width * (2 * heads + 2 * keys)
        + 3 * config.width * config.mlp_width * blocks
        + config.width * config.num_experts
    )
    tokens = float(sum(lengths))
    pairs = float(sum(length * length for length in lengths))
    return Flops(
        layers=2.0 * tokens * weights * config.num_layers,
        attention=2.0 * pairs * heads * config.num_layers,
        head=2.0 * tokens * config.width * config.vocab_size,
    )


def step_flops(forward: Flops, config: ModelConfig) -> float:
    """Forward and backward pass without recomputation, on which MFU is based.

    The backward pass is two products for each of the forward pass, but one where only
    adapters are trained and the weights have no gradient.
    """
    weights = 2.0 if config.lora else 3.0
    return weights * (forward.layers + forward.head) + 3.0 * forward.attention


def executed_flops(forward: Flops, config: ModelConfig) -> float:
    """Forward and backward pass with all that is made again.

    The head makes its logits again. Attention that keeps no weights makes them again in
    its backward pass (5 products to the forward 2), and rematerialization repeats what
    it does not keep. Attention that is not a kernel works above the diagonal too.
    """
    is_kernel = config.attention in ("splash", "cudnn")
    again = {"none": (0, 0), "dots": (0, 1), "full": (1, 1)}[config.remat]
    attention = forward.attention * (1 if is_kernel else 2)
    backward = 2.0 if config.attention == "dense" else 2.5
    weights = 2 if config.lora else 3
    return (
        forward.layers * (weights + again[0])
        + attention * (1 + backward + again[1])
        + forward.head * (weights + 1)
    )
