"""Parameters from and to Hugging Face safetensors directories."""

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr
from safetensors import SafetensorError, safe_open

from agentic_jax.models.config import ModelConfig, from_hf, to_hf
from agentic_jax.models.shards import INDEX, SINGLE, write_shards
from agentic_jax.models.transformer import Transformer

_LAYER = "model.layers.{}."
_EXPERT = _LAYER + "mlp.experts.{}."
_NAMES = {  # Our path -> Hugging Face's name; {} is the layer, then the expert.
    "embed/embedding": "model.embed_tokens.weight",
    "norm/scale": "model.norm.weight",
    "head/kernel": "lm_head.weight",
    "layers/attention_norm/scale": _LAYER + "input_layernorm.weight",
    "layers/mlp_norm/scale": _LAYER + "post_attention_layernorm.weight",
    "layers/attention/q_norm/scale": _LAYER + "self_attn.q_norm.weight",
    "layers/attention/k_norm/scale": _LAYER + "self_attn.k_norm.weight",
    "layers/mlp/gate/kernel": _LAYER + "mlp.gate_proj.weight",
    "layers/mlp/up/kernel": _LAYER + "mlp.up_proj.weight",
    "layers/mlp/down/kernel": _LAYER + "mlp.down_proj.weight",
    **{
        f"layers/attention/{name}/{ours}": f"{_LAYER}self_attn.{name}_proj.{theirs}"
        for name in "qkvo"
        for ours, theirs in (("kernel", "weight"), ("bias", "bias"))
    },
    "layers/mlp/router/kernel": _LAYER + "mlp.gate.weight",
    **{
        f"layers/mlp/experts/{name}/kernel": f"{_EXPERT}{name}_proj.weight"
        for name in ("gate", "up", "down")
    },
}
_CONFIG = "config.json"


def param_shapes(config: ModelConfig) -> Any:
    """The parameter tree with jax.ShapeDtypeStruct leaves; nothing is allocated.

    Adapters are in it if the config has them. Files never hold them: what is loaded and
    saved is the model without.
    """

    def init():  # Makes its own inputs, so that no transfer guard is tripped.
        tokens = jnp.zeros((1, 1), jnp.int32)
        return Transformer(config).init(jax.random.key(0), tokens, tokens, tokens)

    return jax.eval_shape(init)["params"]


def read_config(path: str | os.PathLike) -> ModelConfig:
    """The model that a directory's config.json describes, run in float32.

    Raises:
        FileNotFoundError: no such directory, or no config.json in it.
        ValueError: not JSON, or a model that is not supported.
    """
    path = pathlib.Path(path)
    if not path.is_dir():
        raise FileNotFoundError(
            f"no model directory {path}; give a Hugging Face directory, for example "
            "one that `python -m launch.convert` writes"
        )
    if not (path / _CONFIG).is_file():
        raise FileNotFoundError(f"{path} holds no config.json, so it is no model")
    try:
        return from_hf(_read_json(path / _CONFIG))
    except ValueError as error:
        raise ValueError(f"{path / _CONFIG}: {error}") from error


def load(
    path: str | os.PathLike,
    config: ModelConfig,
    *,
    shardings: Any = None,
    dtype: str | None = None,
) -> Any:
    """The parameter tree of a Hugging Face directory, placed leaf by leaf.

    Args:
        path: directory with model.safetensors, or an index and its shards.
        config: of the model, as read_config gives it.
        shardings: tree of jax.sharding.Sharding; None puts all on the default device.
        dtype: of the result; None is config.param_dtype.

    Raises:
        FileNotFoundError: no weights, or a shard that the index names is not there.
        ValueError: a damaged file, names missing or left over, or a wrong shape.
    """
    path = pathlib.Path(path)
    config = dataclasses.replace(config, lora=None)
    dtype = jnp.dtype(dtype or config.param_dtype)
    shapes = by_path(param_shapes(config))
    placements = None if shardings is None else by_path(shardings)
    with contextlib.ExitStack() as stack:
        tensors = _open_tensors(path, stack)
        _check_names(path, config, wanted=set(_hf_names(config)), found=set(tensors))
        leaves = {}
        for ours, leaf in shapes.items():
            read = partial(_read_slice, ours, leaf.shape, tensors, dtype)
            if placements is None:
                leaves[ours] = jax.device_put(read((slice(None),) * leaf.ndim))
            else:  # Each device's part alone, and no other process's.
                leaves[ours] = jax.make_array_from_callback(
                    leaf.shape, placements[ours], read
                )
    return _nested(leaves)


def save(
    params: Any,
    config: ModelConfig,
    path: str | os.PathLike,
    *,
    dtype: str | None = None,
    max_shard_bytes: int = 5_000_000_000,
    copy_from: str | os.PathLike | None = None,
) -> None:
    """Writes a Hugging Face directory, which appears whole or not at all.

    Args:
        params: tree of [..] arrays that this process can read whole.
        config: of the model.
        path: directory that must not exist yet.
        dtype: of the written weights; None keeps each parameter's own.
        max_shard_bytes: a file holds at most this, or one tensor; more than one file
            adds an index.
        copy_from: model directory whose other files, such as the tokenizer's and the
            chat template, are copied.

    Raises:
        FileExistsError: path is there already.
        OSError: it cannot be written; nothing is left behind.
    """
    config = dataclasses.replace(
        config, param_dtype=dtype or config.param_dtype, lora=None
    )
    leaves = by_path(jax.device_get(params))
    tensors = {
        name: _to_hf(ours, leaves[ours][index])
        for name, (ours, index) in _hf_names(config).items()
    }
    if dtype is not None:
        tensors = {k: v.astype(jnp.dtype(dtype)) for k, v in tensors.items()}
    write(tensors, config, path, max_shard_bytes=max_shard_bytes, copy_from=copy_from)


def write(
    tensors: Mapping[str, np.ndarray],
    config: ModelConfig,
    path: str | os.PathLike,
    *,
    max_shard_bytes: int = 5_000_000_000,
    copy_from: str | os.PathLike | None = None,
) -> None:
    """Writes tensors that already have Hugging Face's names and shapes; see save.

    Raises:
        FileExistsError: path is there already.
        ValueError: the names are not those of the config's model.
        OSError: it cannot be written; nothing is left behind.
    """
    path = pathlib.Path(path)
    _check_names(path, config, wanted=set(_hf_names(config)), found=set(tensors))
    with new_directory(path) as part:
        if copy_from is not None:
            _copy_others(pathlib.Path(copy_from), part)
        (part / _CONFIG).write_text(json.dumps(to_hf(config), indent=2) + "\n")
        write_shards(
            {name: tensor.nbytes for name, tensor in tensors.items()},
            lambda name: {name: tensors[name]},
            part,
            max_shard_bytes=max_shard_bytes,
        )


@contextlib.contextmanager
def new_directory(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A directory to fill, which becomes `path` at the end, or goes if that fails.

    Raises:
        FileExistsError: path is there already.
    """
    check_absent(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.mkdir()
        yield part
        part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def hf_name(ours: str, *index: int) -> str:
    """Hugging Face's name of the parameter at our path, of one layer (and expert)."""
    return _NAMES[ours].format(*index)


def hf_tensors(ours: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """The tensors of a file that the parameter at our path makes, by name."""
    places = np.ndindex(array.shape[: _num_stacked(ours)])
    return {hf_name(ours, *i): _to_hf(ours, array[i]) for i in places}


def check_absent(path: pathlib.Path) -> None:
    """Raises FileExistsError if the directory to be written is there already."""
    if path.exists():
        raise FileExistsError(f"{path} exists; remove it or choose another directory")


def _hf_names(config: ModelConfig) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Hugging Face's name -> (our path, index into it), all that this model has."""
    paths = by_path(param_shapes(config))
    names = {_NAMES[p]: (p, ()) for p in paths if not p.startswith("layers/")}
    for layer in range(config.num_layers):
        for ours in paths:
            if not ours.startswith("layers/"):
                continue
            each = range(config.num_experts) if _num_stacked(ours) == 2 else (None,)
            for expert in each:
                index = (layer,) if expert is None else (layer, expert)
                names[hf_name(ours, *index)] = (ours, index)
    return names


def _num_stacked(ours: str) -> int:
    """How many leading axes number tensors of a file: layers, and experts."""
    return ours.startswith("layers/") + ("/experts/" in ours)


def _hf_shape(ours: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """How Hugging Face shapes one layer's array: kernels are [out, in]."""
    if ours.endswith("/kernel"):
        inputs = 2 if ours == "layers/attention/o/kernel" else 1
        return math.prod(shape[inputs:]), math.prod(shape[:inputs])
    return (math.prod(shape),) if ours.endswith("/bias") else shape


def _to_hf(ours: str, array: np.ndarray) -> np.ndarray:
    shape = _hf_shape(ours, array.shape)
    if ours.endswith("/kernel"):
        return np.ascontiguousarray(array.reshape(shape[::-1]).T)
    return np.ascontiguousarray(array.reshape(shape))


def _from_hf(ours: str, tensor: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return (tensor.T if ours.endswith("/kernel") else tensor).reshape(shape)


def _read_slice(
    ours: str,
    shape: tuple[int, ...],
    tensors: Mapping[str, Any],
    dtype: Any,
    index: tuple[slice, ...],
) -> np.ndarray:
    """One slice of one parameter, converted; only the tensors that it needs are read.

    Args:
        ours: our path.
        shape: of the whole parameter.
        tensors: name -> open file.
        dtype: of the result.
        index: a slice of every dimension.
    """
    lead = _num_stacked(ours)
    spans = [range(size)[part] for size, part in zip(shape, index, strict=True)]
    out = np.empty([len(span) for span in spans], dtype)
    wanted = _hf_shape(ours, shape[lead:])
    for place in np.ndindex(out.shape[:lead]):
        numbers = [span[i] for span, i in zip(spans, place, strict=False)]
        name = hf_name(ours, *numbers)
        tensor = tensors[name].get_tensor(name)
        if tensor.shape != wanted:
            raise ValueError(
                f"{name} has shape {tensor.shape}, but config.json makes it {wanted}: "
                "config and weights are of different models"
            )
        out[place] = _from_hf(ours, tensor, shape[lead:])[index[lead:]]
    return out


def _open_tensors(path: pathlib.Path, stack: contextlib.ExitStack) -> dict[str, Any]:
    """Tensor name -> the open file that holds it."""
    if (path / INDEX).is_file():
        index = _read_json(path / INDEX)["weight_map"]
        files = sorted(set(index.values()))
    elif (path / SINGLE).is_file():
        files = [SINGLE]
    else:
        raise FileNotFoundError(f"{path} holds neither {SINGLE} nor {INDEX}")
    tensors = {}
    for name in files:
        if not (path / name).is_file():
            raise FileNotFoundError(
                f"{path / INDEX} names {name}, which is not there; copy it again"
            )
        try:
            opened = stack.enter_context(safe_open(path / name, framework="numpy"))
        except SafetensorError as error:
            raise ValueError(
                f"{path / name} is damaged or cut short ({error}); copy it again"
            ) from error
        tensors.update(dict.fromkeys(opened.keys(), opened))
    return tensors


def _check_names(
    path: pathlib.Path, config: ModelConfig, *, wanted: set[str], found: set[str]
) -> None:
    ignored = {name for name in found if name.endswith("rotary_emb.inv_freq")}
    if config.tie_embeddings:
        ignored.add(_NAMES["head/kernel"])  # A copy of the embedding, if there.
    missing, extra = sorted(wanted - found), sorted(found - wanted - ignored)
    if missing or extra:
        raise ValueError(
            f"{path} does not hold the {config.family} that its config.json describes: "
            f"missing {_some(missing)}; unexpected {_some(extra)}"
        )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (", ".join(names[:3]) or "none") + more


def _copy_others(source: pathlib.Path, target: pathlib.Path) -> None:
    """Every file but the config and the weights."""
    for file in sorted(source.iterdir()):
        is_weight = ".safetensors" in file.name or file.suffix in (".bin", ".gguf")
        if file.is_file() and file.name != _CONFIG and not is_weight:
            shutil.copyfile(file, target / file.name)


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error


def by_path(tree: Any) -> dict[str, Any]:
    """Path with slashes -> leaf, in the order of the tree."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {keystr(path, simple=True, separator="/"): leaf for path, leaf in flat}


def _nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of by_path."""
    tree: dict[str, Any] = {}
    for path, leaf in leaves.items():
        *parents, last = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = leaf
    return tree
