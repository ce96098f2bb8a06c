"""Safetensors files of a model directory, and the index over several of them."""

import json
import pathlib
from collections.abc import Callable, Mapping

import numpy as np
from safetensors.numpy import save_file

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def write_file(tensors: Mapping[str, np.ndarray], path: pathlib.Path) -> None:
    """Writes one safetensors file that transformers and other users can read."""
    # transformers refuses files that do not name a format.
    save_file(dict(tensors), path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors makes it private; a server may be another user.


def write_shards(
    sizes: Mapping[str, int],
    make: Callable[[str], Mapping[str, np.ndarray]],
    path: pathlib.Path,
    *,
    max_shard_bytes: int,
) -> None:
    """Writes all tensors into a directory, no more than one file of them in memory.

    Args:
        sizes: bytes of each piece, by name; pieces are written in this order.
        make: (name of a piece) -> its tensors by their names in the file.
        path: of the directory.
        max_shard_bytes: a file holds at most this, or one piece; more than one file
            adds an index.
    """
    shards = _cut(sizes, max_shard_bytes)
    weight_map = {}
    for number, shard in enumerate(shards, start=1):
        several = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        file = several if len(shards) > 1 else SINGLE
        tensors: dict[str, np.ndarray] = {}
        for name in shard:
            tensors |= make(name)
        write_file(tensors, path / file)
        weight_map |= dict.fromkeys(tensors, file)
    if len(shards) > 1:
        metadata = {"total_size": sum(sizes.values())}
        text = json.dumps({"metadata": metadata, "weight_map": weight_map}, indent=2)
        (path / INDEX).write_text(text + "\n", "utf-8")


def _cut(sizes: Mapping[str, int], limit: int) -> list[list[str]]:
    """Names in order, cut where a file would grow beyond the limit."""
    shards, used = [[]], 0
    for name, size in sizes.items():
        if shards[-1] and used + size > limit:
            shards.append([])
            used = 0
        shards[-1].append(name)
        used += size
    return shards
