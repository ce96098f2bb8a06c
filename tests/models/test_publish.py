import dataclasses
import json
import os
import pathlib
import resource
import socket
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from safetensors import safe_open

from agentic_jax.models import hf_weights
from agentic_jax.models.config import ModelConfig
from agentic_jax.models.publish import publish

CONFIG = ModelConfig(
    family="qwen3",
    vocab_size=64,
    width=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    mlp_width=48,
    qk_norm=True,
)


class Words:
    """A tokenizer, as far as it is saved."""

    def save_pretrained(self, path):
        (path / "tokenizer.json").write_text("{}")


def make_params(seed):
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(size=leaf.shape).astype(leaf.dtype)),
        hf_weights.param_shapes(CONFIG),
    )


def write(params, directory, version, **options):
    options = {"dtype": "float32", "tokenizer": Words(), **options}
    return publish(params, CONFIG, directory, version=version, **options)


def assert_equal(path, params, *, dtype="float32"):
    config = hf_weights.read_config(path)
    loaded = hf_weights.load(path, config, dtype=dtype)
    jax.tree.map(
        lambda x, y: np.testing.assert_array_equal(x, y.astype(dtype)), loaded, params
    )


def names(directory):
    return sorted(p.name for p in directory.iterdir())


def test_what_is_published_is_what_is_read(tmp_path):
    params = make_params(0)
    path = write(params, tmp_path / "weights", 3)
    assert path == tmp_path / "weights" / "00000003"
    assert names(path) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert_equal(path, params)
    with safe_open(path / "model.safetensors", "numpy") as file:
        assert file.metadata() == {"format": "pt"}


def test_weights_are_cast_to_the_servers_dtype(tmp_path):
    params = make_params(0)
    path = write(params, tmp_path, 1, dtype="bfloat16")
    assert json.loads((path / "config.json").read_text())["dtype"] == "bfloat16"
    assert_equal(path, params, dtype="bfloat16")
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    assert (path / "model.safetensors").stat().st_size < 2 * size + 5_000


def test_files_are_cut_at_parameters(tmp_path):
    params = make_params(0)
    path = write(params, tmp_path, 1, max_shard_bytes=20_000)
    files = sorted(path.glob("*.safetensors"))
    assert 2 < len(files) and files[0].name.endswith(f"of-{len(files):05d}.safetensors")
    assert max(f.stat().st_size for f in files) < 22_000
    assert_equal(path, params)


def test_sharded_parameters_are_gathered(tmp_path):
    mesh = jax.make_mesh(
        (4,), ("fsdp",), axis_types=(AxisType.Auto,), devices=jax.devices()[:4]
    )
    params = make_params(0)
    placed = jax.tree.map(
        lambda x: jax.device_put(
            x,
            NamedSharding(
                mesh,
                PartitionSpec(
                    *[None] * (x.ndim - 1), "fsdp" if x.shape[-1] % 4 == 0 else None
                ),
            ),
        ),
        params,
    )
    previous = jax.config.jax_transfer_guard
    jax.config.update("jax_transfer_guard", "disallow")
    try:
        path = write(placed, tmp_path, 1)
    finally:
        jax.config.update("jax_transfer_guard", previous)
    assert_equal(path, params)


def test_the_last_versions_stay_and_what_was_cut_short_goes(tmp_path):
    params = make_params(0)
    (tmp_path / ".00000001.123.part").mkdir()
    (tmp_path / "notes").mkdir()
    for version in (9, 10, 1, 2):  # A run that went back to an earlier checkpoint.
        write(params, tmp_path, version)
    assert names(tmp_path) == ["00000001", "00000002", "notes"]
    write(params, tmp_path, 3, keep=1)
    assert names(tmp_path) == ["00000003", "notes"]


def test_a_version_that_is_there_is_replaced(tmp_path):
    write(make_params(0), tmp_path, 1)
    params = make_params(1)
    assert_equal(write(params, tmp_path, 1), params)


def test_without_room_the_old_version_is_whole_and_the_new_one_absent(tmp_path):
    params = make_params(0)
    old = write(params, tmp_path, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(OSError, match=r"version 2 .*bytes are free.* make room"):
            write(make_params(1), tmp_path, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == ["00000001"]
    assert_equal(old, params)


def test_a_writer_that_is_stopped_leaves_nothing_that_could_be_read(tmp_path):
    class Stopped(Words):
        def save_pretrained(self, path):
            super().save_pretrained(path)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(make_params(0), tmp_path, 1, tokenizer=Stopped())
    assert not [p for p in tmp_path.iterdir() if not p.name.startswith(".")]


def test_other_parameters_are_refused(tmp_path):
    params = make_params(0)
    for wrong in ({**params, "lora_a": params["norm"]}, {"norm": params["norm"]}):
        with pytest.raises(ValueError, match="merge adapters first"):
            write(wrong, tmp_path, 1)
    with pytest.raises(ValueError, match="keep is 0"):
        write(params, tmp_path, 1, keep=0)
    assert names(tmp_path) == []


def test_the_config_keeps_how_long_contexts_may_be(tmp_path):
    config = dataclasses.replace(CONFIG, max_positions=77)
    path = publish(
        make_params(0), config, tmp_path, version=1, dtype="float32", tokenizer=Words()
    )
    assert hf_weights.read_config(path) == config


_PROCESS = """
import sys
import jax
address, index, directory = sys.argv[1:]
jax.distributed.initialize(address, 2, int(index))
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from tests.models import test_publish as here
mesh = jax.make_mesh((2,), ("fsdp",), axis_types=(AxisType.Auto,))

def place(leaf):
    last = "fsdp" if leaf.shape[-1] % 2 == 0 else None
    spec = PartitionSpec(*[None] * (leaf.ndim - 1), last)
    whole = jax.device_get(leaf)
    sharding = NamedSharding(mesh, spec)
    return jax.make_array_from_callback(whole.shape, sharding, lambda i: whole[i])

placed = jax.tree.map(place, here.make_params(0))
assert not placed["embed"]["embedding"].is_fully_addressable
here.write(placed, here.pathlib.Path(directory), 1)
"""


@pytest.mark.slow
def test_the_first_of_several_processes_writes_what_all_hold(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    environment = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _PROCESS, address, str(index), str(tmp_path)],
            cwd=pathlib.Path(__file__).parent.parent.parent,
            env=environment,
        )
        for index in range(2)
    ]
    try:
        assert [process.wait(300) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
    assert names(tmp_path) == ["00000001"]
    assert_equal(tmp_path / "00000001", make_params(0))
