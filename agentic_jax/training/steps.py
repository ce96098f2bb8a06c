"""The jitted functions of training: score, accumulate gradients, apply.

A micro-batch has one fixed shape [rows, length], so each function compiles once; the
weights of a loss sum to 1 over an optimizer step, so gradients of micro-batches add.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from agentic_jax.batch import Batch
from agentic_jax.losses.logprobs import chunked_logprobs_and_entropy
from agentic_jax.models.config import ModelConfig
from agentic_jax.models.lora import join
from agentic_jax.models.transformer import Transformer, head
from agentic_jax.sharding import HEAD, ROWS
from agentic_jax.training.state import TrainState

Loss = Callable[..., tuple[jax.Array, dict[str, Any]]]


def make_forward(config: ModelConfig, *, temperature: float, chunk: int) -> Callable:
    """(params, Batch, frozen) -> (logprobs, entropy), each [B, T] float32 nats.

    With adapters, params is the adapter and frozen the weights that it stands beside;
    frozen is left away without.

    Args:
        config: of the model.
        temperature: the sampling temperature: ratios compare like with like.
        chunk: no more logits exist at one time than those of so many tokens per row.

    Under jax.set_mesh, rows lie as sharding.ROWS says and the head as sharding.HEAD.
    """
    model = Transformer(config)

    def forward(
        params: Any, batch: Batch, frozen: Any = None
    ) -> tuple[jax.Array, jax.Array]:
        if frozen is not None:
            params = join(frozen, params)
        hidden = model.apply(
            {"params": params}, batch.tokens, batch.positions, batch.segment_ids
        )
        on_mesh = not jax.sharding.get_abstract_mesh().empty
        return chunked_logprobs_and_entropy(
            hidden,
            head(params, config),
            batch.tokens,
            temperature=temperature,
            chunk=chunk,
            row_spec=ROWS if on_mesh else None,
            head_spec=HEAD if on_mesh else None,
        )

    return forward


def make_score_fn(
    forward: Callable,
    *,
    param_shardings: Any,
    row_sharding: Any,
    frozen_shardings: tuple = (),
):
    """Jitted (params, Batch, *frozen) -> (logprobs, entropy), 0 where mask is False.

    Every device gets all rows of both, so that every process can read them.
    """

    def score(params, batch, *frozen):
        logprobs, entropy = forward(params, batch, *frozen)
        return jnp.where(batch.mask, logprobs, 0), jnp.where(batch.mask, entropy, 0)

    return jax.jit(
        score,
        in_shardings=(param_shardings, row_sharding, *frozen_shardings),
        out_shardings=_replicated(row_sharding),
    )


def make_grad_fn(
    forward: Callable,
    loss: Loss,
    *,
    param_shardings: Any,
    row_sharding: Any,
    frozen_shardings: tuple = (),
):
    """Jitted (params, grads, Batch, Targets, scheduled, *frozen) -> (grads, metrics).

    The new grads are the old ones and those of this micro-batch together.

    Args:
        forward: (params, Batch, *frozen) -> (logprobs, entropy).
        loss: (logprobs, entropy, Targets, **scheduled) -> (value, metrics that add
            over rows); scheduled holds scalars by name, so that they may move.
        param_shardings: of params and grads; grads is donated.
        row_sharding: of every [B, T] array.
        frozen_shardings: (those of the frozen weights,) if the function shall take
            them as its last argument; there is no gradient of them.
    """

    def accumulate(params, grads, batch, targets, scheduled, *frozen):
        def objective(params):
            return loss(*forward(params, batch, *frozen), targets, **scheduled)

        (_, metrics), new = jax.value_and_grad(objective, has_aux=True)(params)
        return jax.tree.map(jnp.add, grads, new), metrics

    replicated = _replicated(row_sharding)
    return jax.jit(
        accumulate,
        in_shardings=(
            param_shardings,
            param_shardings,
            row_sharding,
            row_sharding,
            replicated,
            *frozen_shardings,
        ),
        out_shardings=(param_shardings, replicated),
        donate_argnums=1,
    )


def make_apply_fn(optimizer: optax.GradientTransformation, *, state_shardings: Any):
    """Jitted (TrainState, grads) -> (TrainState, gradient norm); donates the state."""

    def apply(state: TrainState, grads: Any):
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        norm = optax.tree.norm(grads)
        return TrainState(params, opt_state, state.updates + 1), norm

    return jax.jit(
        apply,
        in_shardings=(state_shardings, state_shardings.params),
        out_shardings=(state_shardings, _replicated(state_shardings.updates)),
        donate_argnums=0,
    )


def make_zeros_fn(param_shardings: Any):
    """Jitted (params) -> float32 zeros of the same shapes: fresh gradient sums."""
    return jax.jit(
        lambda params: jax.tree.map(jnp.zeros_like, params),
        in_shardings=(param_shardings,),
        out_shardings=param_shardings,
    )


def _replicated(sharding):
    return jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())
