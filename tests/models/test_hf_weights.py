import dataclasses
import json
import pathlib
import shutil

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from agentic_jax.models import hf_weights
from agentic_jax.sharding import RULES, infer_shardings, make_mesh
from tests.golden_models import make

GOLDEN = pathlib.Path(make.__file__).parent
NAME = "qwen2_linear"


@pytest.fixture
def model(tmp_path):
    shutil.copytree(GOLDEN / NAME, tmp_path / "model")
    return tmp_path / "model"


def assert_trees_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize("name", make.MODELS)
def test_saved_tensors_are_those_that_were_loaded(name, tmp_path):
    config = hf_weights.read_config(GOLDEN / name)
    params = hf_weights.load(GOLDEN / name, config)
    hf_weights.save(params, config, tmp_path / "out")
    ours = load_file(tmp_path / "out" / "model.safetensors")
    theirs = load_file(GOLDEN / name / "model.safetensors")
    assert ours.keys() == theirs.keys()
    for key in ours:
        np.testing.assert_array_equal(ours[key], theirs[key])
    assert hf_weights.read_config(tmp_path / "out") == config


def test_shards_hold_at_most_their_size_and_read_back_equal(model, tmp_path):
    config = hf_weights.read_config(model)
    params = hf_weights.load(model, config)
    hf_weights.save(params, config, tmp_path / "out", max_shard_bytes=20_000)
    files = sorted((tmp_path / "out").glob("*.safetensors"))
    assert len(files) > 2
    # Only the header comes on top: a single tensor of this model is smaller.
    assert max(file.stat().st_size for file in files) < 20_000 + 2_000
    assert_trees_equal(hf_weights.load(tmp_path / "out", config), params)


def test_each_device_reads_its_own_part():
    config = hf_weights.read_config(GOLDEN / "qwen3_moe")
    mesh = make_mesh({"fsdp": 2, "tensor": 2, "expert": 2})
    shardings = infer_shardings(hf_weights.param_shapes(config), RULES, mesh)
    placed = hf_weights.load(GOLDEN / "qwen3_moe", config, shardings=shardings)
    assert jax.tree.map(lambda x: x.sharding, placed) == shardings
    assert_trees_equal(placed, hf_weights.load(GOLDEN / "qwen3_moe", config))


def test_bfloat16_is_written_and_read_without_another_rounding(model, tmp_path):
    config = hf_weights.read_config(model)
    params = hf_weights.load(model, config)
    hf_weights.save(params, config, tmp_path / "out", dtype="bfloat16")
    saved = hf_weights.read_config(tmp_path / "out")
    assert json.loads((tmp_path / "out/config.json").read_text())["dtype"] == "bfloat16"
    rounded = jax.tree.map(
        lambda x: np.asarray(x).astype(ml_dtypes.bfloat16).astype(np.float32), params
    )
    assert_trees_equal(hf_weights.load(tmp_path / "out", saved), rounded)


def test_the_tied_head_in_a_file_is_ignored(tmp_path):
    shutil.copytree(GOLDEN / "qwen3_tied", tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    tensors = load_file(file)
    save_file(tensors | {"lm_head.weight": np.zeros((64, 32), np.float32)}, file)
    config = hf_weights.read_config(tmp_path / "model")
    params = hf_weights.load(tmp_path / "model", config)
    assert "head" not in params


def test_saving_copies_the_tokenizer_but_no_weights(model, tmp_path):
    (model / "tokenizer.json").write_text("{}")
    (model / "model-00001-of-00002.safetensors").write_text("old")
    config = hf_weights.read_config(model)
    params = hf_weights.load(model, config)
    hf_weights.save(params, config, tmp_path / "out", copy_from=model)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "reference.npz",
        "tokenizer.json",
    ]


def test_a_failed_save_leaves_nothing_behind(model, tmp_path):
    config = hf_weights.read_config(model)
    params = hf_weights.load(model, config)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        hf_weights.save(params, config, tmp_path / "out", copy_from=tmp_path / "none")
    assert sorted(tmp_path.iterdir()) == before
    with pytest.raises(FileExistsError, match="remove it or choose another"):
        hf_weights.save(params, config, model)


def test_no_directory_and_no_config_are_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="no model directory .*nowhere"):
        hf_weights.read_config(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        hf_weights.read_config(tmp_path)


def test_broken_and_unsupported_configs_name_the_file(model):
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(
        json.dumps(config | {"architectures": ["MambaForCausalLM"]})
    )
    with pytest.raises(ValueError, match=r"config\.json: unsupported arch.*Mamba"):
        hf_weights.read_config(model)
    (model / "config.json").write_text('{"vocab_size": ')
    with pytest.raises(ValueError, match=r"config\.json is not JSON"):
        hf_weights.read_config(model)


def test_missing_and_unexpected_tensors_are_named(model):
    config = hf_weights.read_config(model)
    tensors = load_file(model / "model.safetensors")
    tensors["model.layers.0.gate.weight"] = tensors.pop("model.norm.weight")
    save_file(tensors, model / "model.safetensors")
    with pytest.raises(
        ValueError,
        match=r"missing model\.norm\.weight; unexpected model\.layers\.0\.gate\.weight",
    ):
        hf_weights.load(model, config)


def test_a_wrong_shape_is_named(model):
    config = hf_weights.read_config(model)
    with pytest.raises(ValueError, match=r"mlp\.\w+_proj.weight has shape .*\b48\b"):
        hf_weights.load(model, dataclasses.replace(config, mlp_width=40))


@pytest.mark.parametrize("size", [0, 100, 50_000])
def test_a_cut_file_is_named(model, size):
    config = hf_weights.read_config(model)
    file = model / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged or cut short"):
        hf_weights.load(model, config)


def test_missing_weights_and_missing_shards_are_named(model, tmp_path):
    config = hf_weights.read_config(model)
    params = hf_weights.load(model, config)
    hf_weights.save(params, config, tmp_path / "out", max_shard_bytes=50_000)
    next((tmp_path / "out").glob("*-00001-of-*")).unlink()
    with pytest.raises(FileNotFoundError, match="names model-00001-of-0000.*not there"):
        hf_weights.load(tmp_path / "out", config)
    (model / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="holds neither"):
        hf_weights.load(model, config)


def test_loading_casts_to_the_dtype_asked_for(model):
    config = hf_weights.read_config(model)
    params = hf_weights.load(model, config, dtype="bfloat16")
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("bfloat16")}


@pytest.mark.slow
@pytest.mark.parametrize("name", make.MODELS)
def test_transformers_reads_what_is_saved(name, tmp_path):
    config = hf_weights.read_config(GOLDEN / name)
    params = hf_weights.load(GOLDEN / name, config)
    hf_weights.save(params, config, tmp_path / "out", max_shard_bytes=30_000)
    with np.load(GOLDEN / name / "reference.npz") as expected:
        logits = make.reference(tmp_path / "out")["logits"]
        assert np.abs(logits - expected["logits"]).max() < 1e-5
