"""Low-rank adapters: their parameters, merging, and PEFT's files.

The adapter is a tree of its own, with the paths of the parameters and `lora_a` and
`lora_b` for leaves, so that it alone is differentiated, optimised and saved.
"""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from agentic_jax.models import hf_weights
from agentic_jax.models.config import LoraConfig, ModelConfig
from agentic_jax.models.shards import write_file
from agentic_jax.models.transformer import Transformer

Params = Mapping[str, Any]


def init_adapter(key: jax.Array, config: ModelConfig) -> Params:
    """A fresh adapter, float32; with it the model computes what it does without.

    Args:
        key: of the random numbers in lora_a; lora_b is zero.
        config: of the model, with its lora.
    """

    def draw(key: jax.Array) -> Params:  # The weights are compiled away.
        tokens = jnp.zeros((1, 1), jnp.int32)
        params = Transformer(config).init(key, tokens, tokens, tokens)["params"]
        return _adapters_of(params)

    return jax.jit(draw)(key)


def adapter_shapes(config: ModelConfig) -> Params:
    """The tree of init_adapter with jax.ShapeDtypeStruct leaves."""
    return _adapters_of(hf_weights.param_shapes(config))


def join(base: Params, adapter: Params) -> Params:
    """The parameters that Transformer takes, of weights and an adapter.

    An empty base leaves the second tree as it is, and so does an empty adapter the
    first, so that one forward pass serves both kinds of training.
    """
    if not isinstance(adapter, Mapping):
        return adapter
    added = {name: join(base.get(name, {}), node) for name, node in adapter.items()}
    return {**base, **added}


def merge(base: Params, adapter: Params, lora: LoraConfig) -> Params:
    """Weights without adapter that compute the same: W + (alpha / rank) A B.

    Args:
        base: weights of the model.
        adapter: of the same model.
        lora: gives the scale.

    Returns:
        A tree like base, of its dtypes; what has no adapter is base's own.
    """
    if "lora_a" in adapter:
        added = _product(adapter["lora_a"], adapter["lora_b"])
        kernel = base["kernel"] + lora.scale * added
        return {**base, "kernel": kernel.astype(base["kernel"].dtype)}
    merged = {name: merge(base[name], node, lora) for name, node in adapter.items()}
    return {**base, **merged}


def save_adapter(
    adapter: Params, lora: LoraConfig, path: str | os.PathLike, *, base: str
) -> None:
    """Writes a directory that PEFT loads onto the model `base`, whole or not at all.

    Args:
        adapter: tree that this process can read whole.
        lora: rank, alpha and targets.
        path: directory that must not exist yet.
        base: directory or hub name of the model, for adapter_config.json.

    Raises:
        FileExistsError: path is there already.
        OSError: it cannot be written; nothing is left behind.
    """
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "target_modules": list(lora.targets),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    with hf_weights.new_directory(pathlib.Path(path)) as part:
        text = json.dumps(settings, indent=2) + "\n"
        (part / "adapter_config.json").write_text(text, "utf-8")
        tensors = _peft_tensors(adapter)
        write_file(tensors, part / "adapter_model.safetensors")


def _product(lora_a: jax.Array, lora_b: jax.Array) -> jax.Array:
    """[L, inputs..., outputs...] A B of every layer, in float32 at least."""
    return jax.lax.dot_general(
        lora_a,
        lora_b,
        (((lora_a.ndim - 1,), (1,)), ((0,), (0,))),
        precision=jax.lax.Precision.HIGHEST,
        preferred_element_type=jnp.promote_types(lora_a.dtype, jnp.float32),
    )


def _adapters_of(params: Params) -> Params:
    """The leaves named lora_a and lora_b, in their places."""
    found = {}
    for name, node in params.items():
        if isinstance(node, Mapping):
            if inner := _adapters_of(node):
                found[name] = inner
        elif name in ("lora_a", "lora_b"):
            found[name] = node
    return found


def _peft_tensors(adapter: Params) -> dict[str, np.ndarray]:
    """PEFT's name -> float32 [rank, inputs] or [outputs, rank] of one layer."""
    flat, _ = jax.tree_util.tree_flatten_with_path(jax.device_get(adapter))
    tensors = {}
    for path, stacked in flat:
        *parents, kind = jax.tree_util.keystr(path, simple=True, separator="/").split(
            "/"
        )
        for layer, leaf in enumerate(stacked):
            kernel = hf_weights.hf_name("/".join([*parents, "kernel"]), layer)
            module = "base_model.model." + kernel.removesuffix(".weight")
            # Ours map inputs to outputs, torch's the transposed.
            rank_last = kind == "lora_a"
            shape = (-1, leaf.shape[-1]) if rank_last else (leaf.shape[0], -1)
            name = f"{module}.lora_{'A' if rank_last else 'B'}.weight"
            tensors[name] = np.ascontiguousarray(leaf.reshape(shape).T, np.float32)
    return tensors
