"""Compiles a recipe's score and update steps without weights, and adds up their cost.

Nothing runs: the functions are those of training/steps.py, the arrays are shapes, and
the devices may be descriptions of a machine that is elsewhere.
"""

import dataclasses
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from agentic_jax import sharding
from agentic_jax.batch import Batch, Targets
from agentic_jax.models import hf_weights, lora
from agentic_jax.models.config import ModelConfig
from agentic_jax.packing import FIELDS
from agentic_jax.recipe import Recipe
from agentic_jax.scale.chips import Topology
from agentic_jax.scale.collectives import collective_bytes
from agentic_jax.training import state as train_state
from agentic_jax.training.build import checked_rows, make_functions


@dataclass(frozen=True)
class Program:
    """One compiled function as one device sees it; all sizes in bytes.

    Attributes:
        arguments: what is passed in.
        results: what comes out, without what takes the place of an argument.
        temporaries: what lives only while it runs, with its code.
        resident: what the run holds besides, while this function runs.
        sent: by kind of collective, in one call; None if this jaxlib cannot read what
            the compiler made, as with v5p under jaxlib 0.10.2 and libtpu 0.0.52.
        compile_seconds: of lowering and compiling.
        overflow: what the compiler says if it does not fit; sizes are then unknown,
            but for `temporaries`, in which all it asked for is counted.
    """

    arguments: float
    results: float
    temporaries: float
    resident: float
    sent: Mapping[str, float] | None
    compile_seconds: float
    overflow: str = ""

    @property
    def peak(self) -> float:
        """All that is held at the worst moment."""
        return self.arguments + self.results + self.temporaries + self.resident


@dataclass(frozen=True)
class Plan:
    """What a recipe takes on each device; all sizes in bytes.

    Attributes:
        topology: of the devices.
        num_devices: that the mesh takes.
        mesh: size of each axis.
        model: as it would be run.
        rows, length: of one micro-batch.
        held: between steps, by kind: state, and "frozen" weights beside adapters.
        programs: "score", "grad" and "apply".
    """

    topology: Topology
    num_devices: int
    mesh: Mapping[str, int]
    model: ModelConfig
    rows: int
    length: int
    held: Mapping[str, float]
    programs: Mapping[str, Program] = field(default_factory=dict)

    @property
    def peak(self) -> float:
        """Over all programs."""
        return max(program.peak for program in self.programs.values())

    @property
    def fits(self) -> bool:
        """Whether the compiler took all programs, with what is held beside them."""
        fitted = not any(program.overflow for program in self.programs.values())
        return fitted and self.peak <= self.topology.chip.memory_bytes


def make_plan(
    recipe: Recipe,
    model: ModelConfig,
    topology: Topology,
    devices: Sequence[Any],
    *,
    compiler_options: Mapping[str, Any] | None = None,
) -> Plan:
    """Compiles score, gradient and optimizer step of a recipe for these devices.

    Args:
        recipe: gives mesh, optimizer, loss and micro-batch.
        model: in place of the recipe's own, with its adapters.
        topology: of the devices.
        devices: as jax describes them; all of them, unless the mesh takes fewer.
        compiler_options: passed to XLA.

    Raises:
        ValueError: mesh, micro-batch or parameters do not fit together.
    """
    config = recipe.config
    mesh = _make_mesh(config["mesh"], devices)
    rows = checked_rows(config, mesh)
    weights = hf_weights.param_shapes(dataclasses.replace(model, lora=None))
    frozen = (weights,) if model.lora else ()
    trained = lora.adapter_shapes(model) if model.lora else weights
    state = jax.eval_shape(lambda p: train_state.init(p, recipe.optimizer), trained)
    shardings, frozen_shardings = sharding.infer_shardings(
        (state, frozen), sharding.RULES, mesh
    )
    held = {
        "weights": _bytes_each(state.params, shardings.params),
        "optimizer": _bytes_each(state.opt_state, shardings.opt_state),
        "gradients": _bytes_each(state.params, shardings.params),
    }
    if frozen:
        held["frozen"] = _bytes_each(frozen, frozen_shardings)
    if _has_reference(config):
        held["reference"] = held["weights"]
    functions = make_functions(
        recipe,
        model,
        shardings,
        temperature=config["rollout"]["temperature"],
        frozen_shardings=frozen_shardings,
    )
    programs = {}
    arguments = _arguments(recipe, state, frozen)
    for function, (name, shapes) in zip(functions, arguments.items(), strict=True):
        other = "frozen" if name == "apply" else "optimizer"
        with jax.set_mesh(mesh):
            programs[name] = _compile(
                function,
                shapes,
                resident=held.get("reference", 0.0) + held.get(other, 0.0),
                num_devices=mesh.size,
                options=compiler_options,
            )
    return Plan(
        topology=topology,
        num_devices=mesh.size,
        mesh=dict(mesh.shape),
        model=model,
        rows=rows,
        length=config["batch"]["row_length"],
        held=held,
        programs=programs,
    )


def _make_mesh(axes: Mapping[str, int], devices: Sequence[Any]) -> jax.sharding.Mesh:
    wanted = math.prod(axes.values())
    return sharding.make_mesh(axes, devices if wanted < 0 else devices[:wanted])


def _has_reference(config: Mapping[str, Any]) -> bool:
    return config["kl"]["name"] != "none"


def _arguments(recipe: Recipe, state: Any, frozen: tuple) -> dict[str, tuple]:
    """The shapes of what the functions of training are called with."""
    batch, targets = _rows(recipe.config)
    scheduled = {
        name: jax.ShapeDtypeStruct((), jnp.float32) for name in recipe.schedules
    }
    return {
        "score": (state.params, batch, *frozen),
        "grad": (state.params, state.params, batch, targets, scheduled, *frozen),
        "apply": (state, state.params),
    }


def _rows(config: Mapping[str, Any]) -> tuple[Batch, Targets]:
    """The shapes of one micro-batch, as packing and step_targets make it."""
    shape = tuple(config["batch"][k] for k in ("rows_per_microbatch", "row_length"))
    fields = {name: jax.ShapeDtypeStruct(shape, kind) for name, kind in FIELDS.items()}
    numbers = jax.ShapeDtypeStruct(shape, jnp.float32)
    targets = Targets(
        mask=fields["mask"],
        segment_ids=fields["segment_ids"],
        old_logprobs=numbers,
        advantages=numbers,
        weights=numbers,
        ref_logprobs=numbers if _has_reference(config) else None,
    )
    return Batch(**fields), targets


def _bytes_each(tree: Any, shardings: Any) -> float:
    """Bytes of a tree of shapes on each device."""
    return sum(
        math.prod(place.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf, place in zip(
            jax.tree.leaves(tree), jax.tree.leaves(shardings), strict=True
        )
    )


def _compile(
    function: Callable,
    arguments: tuple,
    *,
    resident: float,
    num_devices: int,
    options: Mapping[str, Any] | None,
) -> Program:
    start = time.perf_counter()
    lowered = function.lower(*arguments)
    try:
        compiled = lowered.compile(options)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return Program(
            arguments=0.0,
            results=0.0,
            temporaries=_asked_for(str(error)),
            resident=resident,
            sent={},
            compile_seconds=time.perf_counter() - start,
            overflow=str(error),
        )
    seconds = time.perf_counter() - start
    memory = compiled.memory_analysis()
    return Program(
        arguments=memory.argument_size_in_bytes,
        results=memory.output_size_in_bytes - memory.alias_size_in_bytes,
        temporaries=memory.temp_size_in_bytes + memory.generated_code_size_in_bytes,
        resident=resident,
        sent=_sent(compiled, num_devices),
        compile_seconds=seconds,
    )


def _sent(compiled: jax.stages.Compiled, num_devices: int) -> dict[str, float] | None:
    try:
        text = compiled.as_text()
    except jax.errors.JaxRuntimeError as error:
        if "async-update" not in str(error):
            raise
        return None
    return collective_bytes(text, num_devices=num_devices)


def _asked_for(message: str) -> float:
    """Bytes that the compiler says it would have used; infinite if it does not say."""
    used = re.search(r"[Uu]sed ([\d.]+)([GM]) of", message)
    return float(used[1]) * {"G": 2**30, "M": 2**20}[used[2]] if used else math.inf
