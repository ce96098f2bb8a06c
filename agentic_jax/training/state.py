"""What an optimizer step reads and writes."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """Parameters, optimizer state and how many optimizer updates made them.

    Attributes:
        params: float32 master weights.
        opt_state: of the optax transformation.
        updates: [] int32.
    """

    params: Any
    opt_state: Any
    updates: jax.Array


def init(params: Any, optimizer: optax.GradientTransformation) -> TrainState:
    """The state before the first update."""
    return TrainState(params, optimizer.init(params), jnp.zeros((), jnp.int32))


def param_count(params: Any) -> int:
    """The number of scalars in all leaves."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
