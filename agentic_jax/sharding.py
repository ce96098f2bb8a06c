"""Meshes, and where every parameter and every row lives on them."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.tree_util import keystr

AXES = ("data", "fsdp", "tensor", "sequence", "expert")
# Attention and dense blocks know no experts: there, `expert` is one more way to cut
# rows, and to cut parameters like fsdp.
FSDP = ("fsdp", "expert")
ROWS = P(("data", *FSDP), "sequence")  # Of every [B, T] array.
HEAD = P(FSDP, "tensor")  # Of the output projection [D, V], tied or not.

Rules = Sequence[tuple[str, P]]

# The first pattern found in a leaf's path decides. Optimizer states repeat the paths of
# the parameters below their own, so one table serves both.
RULES: Rules = (
    (r"(^|/)embed/embedding$", P("tensor", FSDP)),
    (r"(^|/)head/kernel$", HEAD),
    (r"/attention/[qkv]/kernel$", P(None, FSDP, "tensor", None)),
    (r"/attention/[qkv]/bias$", P(None, "tensor", None)),
    (r"/attention/o/kernel$", P(None, "tensor", None, FSDP)),
    (r"/attention/o/bias$", P()),
    (r"/mlp/(gate|up)/kernel$", P(None, FSDP, "tensor")),
    (r"/mlp/down/kernel$", P(None, "tensor", FSDP)),
    (r"/mlp/router/kernel$", P(None, FSDP, None)),
    (r"/mlp/experts/(gate|up)/kernel$", P(None, "expert", "fsdp", "tensor")),
    (r"/mlp/experts/down/kernel$", P(None, "expert", "tensor", "fsdp")),
    (r"/(attention/[qkv]|mlp/(gate|up))/lora_a$", P(None, FSDP)),
    (r"/(attention/[qkv]|mlp/(gate|up))/lora_b$", P(None, None, "tensor")),
    (r"/(attention/o|mlp/down)/lora_a$", P(None, "tensor")),
    (r"/(attention/o|mlp/down)/lora_b$", P(None, None, FSDP)),
    (r"norm/scale$", P()),
)


def make_mesh(
    axes: Mapping[str, int], devices: Sequence[jax.Device] | None = None
) -> Mesh:
    """A mesh of all five axes, Auto, over the devices in order.

    Args:
        axes: size by axis name; an absent axis has size 1, and one may be -1, which
            takes what the others leave.
        devices: to use all of; None is jax.devices().

    Raises:
        ValueError: an unknown axis, or sizes whose product is not the device count.
    """
    devices = jax.devices() if devices is None else list(devices)
    for name, size in axes.items():
        if name not in AXES:
            raise ValueError(f"unknown mesh axis {name!r}; axes: {', '.join(AXES)}")
        if size < 1 and size != -1:
            raise ValueError(f"mesh axis {name} is {size}; sizes are positive or -1")
    sizes = {name: axes.get(name, 1) for name in AXES}
    free = [name for name, size in sizes.items() if size == -1]
    if len(free) > 1:
        raise ValueError(f"mesh axes {' and '.join(free)} are both -1; one may be")
    fixed = math.prod(size for size in sizes.values() if size != -1)
    shown = " x ".join(f"{name}={size}" for name, size in axes.items()) or "no axes"
    if free:
        if len(devices) % fixed:
            raise ValueError(
                f"mesh {shown}: {len(devices)} devices do not divide by {fixed}"
            )
        sizes[free[0]] = len(devices) // fixed
    elif fixed != len(devices):
        raise ValueError(
            f"mesh {shown} takes {fixed} devices, but there are {len(devices)}; "
            "set one axis to -1 to fill in"
        )
    return jax.make_mesh(
        tuple(sizes.values()),
        tuple(sizes),
        axis_types=(AxisType.Auto,) * len(sizes),
        devices=devices,
    )


def infer_shardings(tree: Any, rules: Rules, mesh: Mesh) -> Any:
    """The NamedSharding of every leaf, by its path.

    Args:
        tree: parameters, or a train state that holds them, of arrays or
            jax.ShapeDtypeStruct. Scalars are replicated without a rule.
        rules: (pattern, PartitionSpec); the first pattern that re.search finds in the
            path "a/b/c" decides. A spec shorter than the shape replicates the rest.
        mesh: with every axis that the rules name.

    Raises:
        ValueError: no rule for a leaf, or a dimension that does not divide over its
            axes; the message names the leaf.
    """

    def infer(path, leaf):
        name = keystr(path, simple=True, separator="/")
        if leaf.ndim == 0:
            return NamedSharding(mesh, P())
        for pattern, spec in rules:
            if re.search(pattern, name):
                _check_divides(name, leaf.shape, spec, mesh)
                return NamedSharding(mesh, spec)
        raise ValueError(
            f"no sharding rule matches {name} {leaf.shape}; add one, "
            "with PartitionSpec() to replicate it"
        )

    return jax.tree_util.tree_map_with_path(infer, tree)


def row_sharding(mesh: Mesh) -> NamedSharding:
    """Of [B, T] arrays: rows over data, fsdp and expert, tokens over sequence."""
    return NamedSharding(mesh, ROWS)


def row_shards(mesh: Mesh) -> int:
    """How many parts the rows of a batch are cut into; rows must be a multiple."""
    return math.prod(mesh.shape[axis] for axis in ROWS[0])


def constrain(x: jax.Array, spec: P) -> jax.Array:
    """x kept as the spec says under `jax.set_mesh`; elsewhere unchanged.

    Without it the compiler may move activations to where the weights are sharded,
    while fsdp means to gather the weights.
    """
    if jax.sharding.get_abstract_mesh().empty:
        return x
    return jax.lax.with_sharding_constraint(x, spec)


def put_batch(tree: Any, mesh: Mesh) -> Any:
    """The tree of [B, T] host arrays on the mesh, sharded as row_sharding says.

    Scalars are replicated.

    Raises:
        ValueError: rows or tokens do not divide over their axes.
    """
    for leaf in jax.tree.leaves(tree):
        if leaf.ndim:
            _check_divides("a batch", leaf.shape, ROWS, mesh)
    shardings = (NamedSharding(mesh, P()), row_sharding(mesh))
    return put(tree, jax.tree.map(lambda x: shardings[x.ndim > 0], tree))


def put(tree: Any, shardings: Any) -> Any:
    """The tree of arrays, laid out as the tree of shardings says.

    Args:
        tree: of NumPy arrays or of arrays on this process's devices. In a run of
            several processes all hold the same, and each places its own part.
        shardings: of each leaf.
    """
    if jax.process_count() == 1:
        return jax.device_put(tree, shardings)

    def place(x: Any, sharding: NamedSharding) -> jax.Array:
        return jax.make_array_from_callback(x.shape, sharding, lambda part: x[part])

    return jax.tree.map(place, jax.device_get(tree), shardings)


def _check_divides(name: str, shape: tuple[int, ...], spec: P, mesh: Mesh) -> None:
    if len(spec) > len(shape):
        raise ValueError(f"{name} has shape {shape}, but its rule is {spec}")
    for dimension, entry in enumerate(spec):
        names = (entry,) if isinstance(entry, str) else entry or ()
        parts = math.prod(mesh.shape[axis] for axis in names)
        if shape[dimension] % parts:
            over = " x ".join(f"{axis}={mesh.shape[axis]}" for axis in names)
            raise ValueError(
                f"dimension {dimension} of {name} {shape} is {shape[dimension]}, which "
                f"does not divide over {over}; make {' or '.join(names)} smaller"
            )
