"""From a recipe and a model to sharded state and jitted functions."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from absl import logging

from agentic_jax import sharding
from agentic_jax.models import lora
from agentic_jax.models.config import ModelConfig
from agentic_jax.recipe import Recipe
from agentic_jax.scale.utilization import update_metrics
from agentic_jax.sources import Model
from agentic_jax.training import state as train_state
from agentic_jax.training import steps
from agentic_jax.training.processes import make_gather_fn
from agentic_jax.training.update import Device, make_targets_fn


def build_device(
    recipe: Recipe, model: Model, *, temperature: float
) -> tuple[Device, train_state.TrainState]:
    """The jitted functions of a run, and its state before the first update.

    Args:
        recipe: gives mesh, optimizer, loss and micro-batch.
        model: its parameters are moved into the state, or frozen beside it where only
            adapters are trained.
        temperature: at which log-probabilities are taken.

    Raises:
        ValueError: the micro-batch does not divide over the mesh, or a parameter has
            no sharding rule.
    """
    config = recipe.config
    mesh = _make_mesh(config["mesh"])
    rows = checked_rows(config, mesh)
    parts = _parts(model, config, mesh)
    init = _init_fn(recipe)
    state_shardings = sharding.infer_shardings(
        jax.eval_shape(init, parts.trained), sharding.RULES, mesh
    )
    state = jax.jit(init, out_shardings=state_shardings)(parts.trained)
    score, grad, apply = make_functions(
        recipe,
        parts.config,
        state_shardings,
        temperature=temperature,
        frozen_shardings=parts.frozen_shardings,
    )
    gather = make_gather_fn(mesh)
    device = Device(
        score=_within(mesh, score, *parts.frozen),
        zeros=_within(mesh, steps.make_zeros_fn(state_shardings.params)),
        grad=_within(mesh, grad, *parts.frozen),
        apply=_within(mesh, apply),
        put=lambda tree: sharding.put_batch(tree, mesh),
        rows=rows,
        weights=lambda params: gather(parts.merged(params)),
        rates=functools.partial(update_metrics, parts.config, num_devices=mesh.size),
        targets=recipe.credit
        and make_targets_fn(recipe.credit, recipe.aggregation, recipe.correction),
    )
    return device, state


def make_functions(
    recipe: Recipe,
    model: ModelConfig,
    state_shardings: train_state.TrainState,
    *,
    temperature: float,
    frozen_shardings: tuple,
) -> tuple[Callable, Callable, Callable]:
    """The jitted score, grad and apply of training/steps.py, for a run or for a plan.

    Args:
        recipe: gives optimizer, loss and chunk.
        model: with its adapters.
        state_shardings: of the train state.
        temperature: at which log-probabilities are taken.
        frozen_shardings: (those of the weights,) beside adapters, or ().
    """
    forward = steps.make_forward(
        model, temperature=temperature, chunk=recipe.config["batch"]["logprob_chunk"]
    )
    shardings = {
        "param_shardings": state_shardings.params,
        "row_sharding": sharding.row_sharding(state_shardings.updates.mesh),
        "frozen_shardings": frozen_shardings,
    }
    return (
        steps.make_score_fn(forward, **shardings),
        steps.make_grad_fn(forward, recipe.loss, **shardings),
        steps.make_apply_fn(recipe.optimizer, state_shardings=state_shardings),
    )


def checked_rows(config: Mapping[str, Any], mesh: jax.sharding.Mesh) -> int:
    """Rows of a micro-batch; raises ValueError if they do not divide over the mesh."""
    rows, shards = config["batch"]["rows_per_microbatch"], sharding.row_shards(mesh)
    if rows % shards:
        raise ValueError(
            f"batch.rows_per_microbatch is {rows}; it must divide over the {shards} "
            "shards of rows that the mesh's data, fsdp and expert axes make"
        )
    return rows


@dataclass(frozen=True)
class _Parts:
    """A model on the mesh: what is trained, and what stands beside it."""

    trained: Any
    config: ModelConfig
    merged: Callable[[Any], Any]
    frozen: tuple = ()
    frozen_shardings: tuple = ()


def _parts(model: Model, config: Mapping[str, Any], mesh: jax.sharding.Mesh) -> _Parts:
    shardings = sharding.infer_shardings(model.params, sharding.RULES, mesh)
    base = sharding.put(model.params, shardings)
    if not model.lora:
        # An engine that samples during an update must not lose its weights to it.
        copies = config.get("overlap", False)
        copy = functools.partial(jax.tree.map, jnp.copy)
        return _Parts(base, model.config, copy if copies else lambda params: params)
    with_adapter = dataclasses.replace(model.config, lora=model.lora)
    adapter = lora.init_adapter(jax.random.key(config["seed"]), with_adapter)
    adapter_shardings = sharding.infer_shardings(adapter, sharding.RULES, mesh)
    merge = functools.partial(lora.merge, lora=model.lora)
    return _Parts(
        trained=sharding.put(adapter, adapter_shardings),
        config=with_adapter,
        merged=functools.partial(jax.jit(merge, out_shardings=shardings), base),
        frozen=(base,),
        frozen_shardings=(shardings,),
    )


def _make_mesh(axes: Mapping[str, int]) -> jax.sharding.Mesh:
    """The mesh of the config; without a -1 it may leave devices unused."""
    if -1 in axes.values() or jax.process_count() > 1:  # Each has a device in it.
        return sharding.make_mesh(axes)
    devices = jax.devices()
    wanted = math.prod(axes.values())
    if wanted < len(devices):
        logging.info("the mesh uses %d of %d devices", wanted, len(devices))
    return sharding.make_mesh(axes, devices[:wanted])


def _within(mesh: jax.sharding.Mesh, function: Callable, *last: Any) -> Callable:
    """The function, traced and called with `mesh` as the one that constraints mean.

    `last` are its last arguments, the same in every call.
    """

    def call(*args):
        with jax.set_mesh(mesh):
            return function(*args, *last)

    return call


def _init_fn(recipe: Recipe) -> Callable:
    return lambda params: train_state.init(params, recipe.optimizer)
