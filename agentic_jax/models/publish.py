"""Weights out of a training run, for servers that read them from a shared folder."""

import dataclasses
import json
import math
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from safetensors import SafetensorError

from agentic_jax.models.config import ModelConfig, to_hf
from agentic_jax.models.hf_weights import (
    by_path,
    hf_tensors,
    new_directory,
    param_shapes,
)
from agentic_jax.models.shards import write_shards


def publish(
    params: Any,
    config: ModelConfig,
    directory: str | os.PathLike,
    *,
    version: int,
    dtype: str,
    tokenizer: Any,
    keep: int = 2,
    max_shard_bytes: int = 2_000_000_000,
) -> pathlib.Path:
    """Writes one version of the weights as a Hugging Face directory.

    It is written under a hidden name and then renamed, so that whoever sees it can read
    it whole, however the writer ends. A directory has one writer; a RAM disk such as
    /dev/shm is the fastest place. One parameter at a time is cast and gathered, never
    the model on one device, and a file at a time is held on the host. In a run of
    several processes all must call this; the first one writes.

    Args:
        params: tree of the Transformer's arrays, sharded or not, adapters merged.
        config: of the model.
        directory: of all versions.
        version: names the new one; one of that name is replaced.
        dtype: of the written weights, the servers' own.
        tokenizer: saved beside them by its save_pretrained(path).
        keep: how many versions stay, this one included; at least 1.
        max_shard_bytes: a file holds at most this, or one parameter of all layers.

    Returns:
        The version's own directory.

    Raises:
        ValueError: params are not the model's, or keep is below 1.
        OSError: no space, no rights; earlier versions are whole, and this one is not
            there at all.
    """
    if keep < 1:
        raise ValueError(f"keep is {keep}; the version just written must stay")
    config = dataclasses.replace(config, param_dtype=dtype, lora=None)
    leaves = by_path(params)
    _check_names(leaves, config)
    path = pathlib.Path(directory) / f"{version:08d}"
    if jax.process_index() != 0:
        for leaf in leaves.values():
            _gathered(leaf, dtype)
        return path
    width = jnp.dtype(dtype).itemsize
    try:
        _remove(path)
        with new_directory(path) as part:
            tokenizer.save_pretrained(part)
            text = json.dumps(to_hf(config), indent=2)
            (part / "config.json").write_text(text + "\n", "utf-8")
            write_shards(
                {ours: width * math.prod(leaf.shape) for ours, leaf in leaves.items()},
                lambda ours: hf_tensors(ours, _gathered(leaves[ours], dtype)),
                part,
                max_shard_bytes=max_shard_bytes,
            )
        _remove_all_but(path, keep=keep)
    except (OSError, SafetensorError) as error:
        raise OSError(
            f"version {version} of the weights was not written to {directory}, where "
            f"{_free_bytes(path.parent):,} bytes are free: {error}; earlier versions "
            "are whole: make room and go on"
        ) from error
    return path


def _gathered(leaf: Any, dtype: str) -> np.ndarray:
    """A parameter on the host, cast where it lies."""
    leaf = jnp.asarray(leaf).astype(dtype)
    if leaf.is_fully_addressable:
        return jax.device_get(leaf)
    return multihost_utils.process_allgather(leaf, tiled=True)


def _check_names(leaves: Mapping[str, Any], config: ModelConfig) -> None:
    wanted = by_path(param_shapes(config))
    wrong = sorted(wanted.keys() ^ leaves.keys())
    if wrong:
        raise ValueError(
            f"the parameters are not those of the config: {', '.join(wrong[:3])} "
            "missing or left over; merge adapters first"
        )


def _remove(path: pathlib.Path) -> None:
    """Removes a version so that nobody finds half of it."""
    if path.exists():
        gone = path.with_name(f".{path.name}.gone.part")
        path.rename(gone)
        shutil.rmtree(gone)


def _remove_all_but(path: pathlib.Path, *, keep: int) -> None:
    """Removes all but the newest versions, and what killed writers left."""
    versions = [p for p in path.parent.iterdir() if p.name.isdigit() and p != path]
    versions.sort(key=lambda p: p.stat().st_mtime_ns)
    for old in versions[: max(len(versions) - keep + 1, 0)]:
        _remove(old)
    for part in path.parent.glob(".*.part"):
        shutil.rmtree(part, ignore_errors=True)


def _free_bytes(path: pathlib.Path) -> int:
    return shutil.disk_usage(path if path.exists() else "/").free
