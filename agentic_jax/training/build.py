"""From a recipe and a model to sharded state and jitted functions."""

from collections.abc import Callable

import jax

from agentic_jax import sharding
from agentic_jax.models.config import ModelConfig
from agentic_jax.recipe import Recipe
from agentic_jax.sources import Model
from agentic_jax.training import state as train_state
from agentic_jax.training import steps
from agentic_jax.training.update import Device, make_targets_fn


def build_device(
    recipe: Recipe, model: Model, *, temperature: float
) -> tuple[Device, train_state.TrainState]:
    """The jitted functions of a run, and its state before the first update.

    Args:
        recipe: gives mesh, optimizer, loss and micro-batch.
        model: its parameters are moved into the state.
        temperature: at which log-probabilities are taken.

    Raises:
        ValueError: the micro-batch does not divide over the mesh, or a parameter has
            no sharding rule.
    """
    config = recipe.config
    mesh = sharding.make_mesh(config["mesh"])
    rows = config["batch"]["rows_per_microbatch"]
    devices = mesh.shape["data"] * mesh.shape["fsdp"]
    if rows % devices:
        raise ValueError(
            f"batch.rows_per_microbatch is {rows}; it must divide over the mesh's "
            f"data x fsdp = {mesh.shape['data']} x {mesh.shape['fsdp']} devices"
        )
    rules = sharding.RULES
    params = jax.device_put(
        model.params, sharding.infer_shardings(model.params, rules, mesh)
    )
    init = _init_fn(recipe)
    state_shardings = sharding.infer_shardings(
        jax.eval_shape(init, params), rules, mesh
    )
    state = jax.jit(init, out_shardings=state_shardings)(params)
    forward = _forward(model.config, config, temperature)
    shardings = {
        "param_shardings": state_shardings.params,
        "row_sharding": sharding.row_sharding(mesh),
    }
    device = Device(
        score=steps.make_score_fn(forward, **shardings),
        zeros=steps.make_zeros_fn(state_shardings.params),
        grad=steps.make_grad_fn(forward, recipe.loss, **shardings),
        apply=steps.make_apply_fn(recipe.optimizer, state_shardings=state_shardings),
        put=lambda tree: sharding.put_batch(tree, mesh),
        rows=rows,
        targets=recipe.credit
        and make_targets_fn(recipe.credit, recipe.aggregation, recipe.correction),
    )
    return device, state


def _init_fn(recipe: Recipe) -> Callable:
    return lambda params: train_state.init(params, recipe.optimizer)


def _forward(model: ModelConfig, config, temperature: float) -> Callable:
    return steps.make_forward(
        model, temperature=temperature, chunk=config["batch"]["logprob_chunk"]
    )
