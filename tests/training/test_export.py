import asyncio
import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from agentic_jax.models import hf_weights, lora
from agentic_jax.models.config import LoraConfig
from agentic_jax.recipe import build_rl
from agentic_jax.rollout.engine import SamplingParams
from agentic_jax.rollout.jax_engine import JaxEngine
from agentic_jax.training import rl
from agentic_jax.training.export import export_model
from tests.training import config_parity

OPTIONS = {"step": None, "adapter": False, "dtype": None}
LORA = {"rank": 2, "alpha": 4.0, "targets": ["q_proj", "o_proj", "down_proj"]}


def train(workdir, **changes):
    config = config_parity.get_config()
    config.num_steps = 2
    config.model.update(changes)
    return rl.train(build_rl(config), workdir=workdir)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("run")
    return workdir, train(workdir)


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("adapted")
    return workdir, train(workdir, lora=LORA)


def load(path):
    return hf_weights.load(path, hf_weights.read_config(path))


def test_the_newest_checkpoint_is_what_the_run_ended_with(run, tmp_path):
    workdir, (_, params) = run
    assert export_model(workdir, tmp_path / "model", **OPTIONS) == 2
    jax.tree.map(np.testing.assert_array_equal, load(tmp_path / "model"), params)
    assert (tmp_path / "model" / "tokenizer.json").exists()
    with pytest.raises(FileExistsError, match="model exists"):
        export_model(workdir, tmp_path / "model", **OPTIONS)


def test_an_earlier_step_is_another_model_in_the_dtype_asked_for(run, tmp_path):
    workdir, (_, params) = run
    options = {**OPTIONS, "step": 1, "dtype": "bfloat16"}
    assert export_model(workdir, tmp_path / "model", **options) == 1
    text = (tmp_path / "model" / "config.json").read_text()
    assert json.loads(text)["dtype"] == "bfloat16"
    same = jax.tree.map(np.array_equal, load(tmp_path / "model"), params)
    assert not all(jax.tree.leaves(same))


def test_what_is_not_there_is_refused(run, tmp_path):
    with pytest.raises(FileNotFoundError, match="of step 9; it has 1, 2"):
        export_model(run[0], tmp_path / "model", **{**OPTIONS, "step": 9})
    with pytest.raises(ValueError, match="trains all weights"):
        export_model(run[0], tmp_path / "model", **{**OPTIONS, "adapter": True})
    with pytest.raises(FileNotFoundError, match="no config.json"):
        export_model(tmp_path, tmp_path / "model", **OPTIONS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_adapters_are_merged_or_written_alone(adapted, tmp_path):
    workdir, (model, params) = adapted
    export_model(workdir, tmp_path / "merged", **OPTIONS)
    merged = load(tmp_path / "merged")
    for mine, theirs in zip(*map(jax.tree.leaves, (merged, params)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-7)
    export_model(workdir, tmp_path / "adapter", **{**OPTIONS, "adapter": True})
    tensors = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    name = "base_model.model.model.layers.0.mlp.down_proj.lora_{}.weight"
    a, b = (tensors[name.format(x)] for x in "AB")
    change = params["layers"]["mlp"]["down"]["kernel"][0]
    change = change - model.params["layers"]["mlp"]["down"]["kernel"][0]
    scale = LoraConfig(**{**LORA, "targets": tuple(LORA["targets"])}).scale
    np.testing.assert_allclose(scale * (b @ a).T, change, atol=1e-6)
    assert lora.merge(model.params, {}, model.lora) == model.params


@pytest.mark.slow
def test_exported_weights_generate_the_same_tokens_in_transformers(adapted, tmp_path):
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    workdir, (model, params) = adapted
    export_model(workdir, tmp_path / "model", **OPTIONS)
    prompt = np.asarray(model.tokenizer("What is 12 times 34?")["input_ids"], np.int32)

    async def sampled():
        sizes = {"rows": 2, "length": 96, "deterministic": True}
        engine = JaxEngine(params, model.config, decode=model.tokenizer.decode, **sizes)
        greedy = SamplingParams(max_tokens=40, temperature=0.0)
        done = await engine.generate(prompt, greedy, session="a")
        await engine.close()
        return done.token_ids

    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    ids = torch.tensor(prompt[None].astype(np.int64))
    made = theirs.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=40,
        eos_token_id=None,
    )
    ours = asyncio.run(sampled())
    np.testing.assert_array_equal(made[0, len(prompt) :].numpy(), ours)
