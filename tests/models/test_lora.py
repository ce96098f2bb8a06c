import dataclasses
import json
import pathlib

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from agentic_jax.models import hf_weights, lora
from agentic_jax.models.config import LoraConfig, ModelConfig
from agentic_jax.models.transformer import Transformer, head
from tests.golden_models import make

GOLDEN = pathlib.Path(make.__file__).parent / "qwen3_yarn"
LORA = LoraConfig(
    rank=3,
    alpha=6.0,
    targets=("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "down_proj"),
)
PLAIN = hf_weights.read_config(GOLDEN)
CONFIG = dataclasses.replace(PLAIN, lora=LORA)
RNG = np.random.default_rng(0)
ROWS = (
    RNG.integers(0, 64, (2, 12)).astype(np.int32),
    np.tile(np.arange(12, dtype=np.int32), (2, 1)),
    np.ones((2, 12), np.int32),
)


@pytest.fixture(scope="module")
def base():
    return hf_weights.load(GOLDEN, PLAIN)


@pytest.fixture(scope="module")
def fresh():
    return lora.init_adapter(jax.random.key(0), CONFIG)


@pytest.fixture(scope="module")
def trained(fresh):
    return jax.tree.map(lambda x: 0.2 * RNG.standard_normal(x.shape, "f4"), fresh)


@pytest.fixture(scope="module")
def run():
    @jax.jit
    def with_adapter(params):
        return Transformer(CONFIG).apply({"params": params}, *ROWS)

    @jax.jit
    def without(params):
        return Transformer(PLAIN).apply({"params": params}, *ROWS)

    return with_adapter, without


def test_a_fresh_adapter_changes_nothing_bit_for_bit(base, fresh, run):
    with_adapter, without = run
    joined = lora.join(base, fresh)
    np.testing.assert_array_equal(with_adapter(joined), without(base))
    merged = lora.merge(base, fresh, LORA)
    jax.tree.map(np.testing.assert_array_equal, merged, base)


def test_merged_weights_compute_what_the_adapter_does(base, trained, run):
    with_adapter, without = run
    hidden = with_adapter(lora.join(base, trained))
    merged = jax.jit(lambda *trees: lora.merge(*trees, LORA))(base, trained)
    np.testing.assert_allclose(without(merged), hidden, rtol=1e-4, atol=1e-4)
    assert np.abs(hidden - without(base)).max() > 0.1


def test_only_what_is_named_has_an_adapter(fresh, base):
    layers = fresh["layers"]
    assert fresh.keys() == {"layers"} and layers.keys() == {"attention", "mlp"}
    assert layers["attention"].keys() == set("qkvo")
    assert layers["mlp"].keys() == {"gate", "down"}
    shapes = jax.tree.map(lambda x: x.shape, layers["attention"])
    assert shapes["q"] == {"lora_a": (2, 32, 3), "lora_b": (2, 3, 4, 16)}
    assert shapes["o"] == {"lora_a": (2, 4, 16, 3), "lora_b": (2, 3, 32)}
    a = np.asarray(layers["attention"]["o"]["lora_a"])
    # PEFT: uniform within 1 / sqrt(inputs), here 1 / 8.
    assert 0.12 < np.abs(a).max() <= 0.125 and abs(a.std() - 0.125 / 3**0.5) < 0.005
    assert np.abs(a[0] - a[1]).max() > 0.01
    jax.tree.map(np.testing.assert_array_equal, lora.join({}, base), base)


def test_an_exported_adapter_has_the_names_and_shapes_of_peft(trained, tmp_path):
    lora.save_adapter(trained, LORA, tmp_path / "adapter", base="some/model")
    settings = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    assert (settings["r"], settings["lora_alpha"]) == (3, 6.0)
    assert settings["target_modules"] == list(LORA.targets)
    tensors = load_file(tmp_path / "adapter/adapter_model.safetensors")
    assert len(tensors) == 2 * 2 * len(LORA.targets)
    at = "base_model.model.model.layers.1.self_attn.o_proj.lora_"
    a, b = tensors[f"{at}A.weight"], tensors[f"{at}B.weight"]
    assert (a.shape, b.shape) == ((3, 64), (32, 3))
    ours = trained["layers"]["attention"]["o"]
    np.testing.assert_array_equal(a, ours["lora_a"][1].reshape(64, 3).T)
    np.testing.assert_array_equal(b, ours["lora_b"][1].T)
    with pytest.raises(FileExistsError, match="adapter exists"):
        lora.save_adapter(trained, LORA, tmp_path / "adapter", base="some/model")


@pytest.mark.parametrize(
    "rank, targets, message",
    [
        (0, ("q_proj",), "rank is 0"),
        (1, ("query",), r"targets are \['query'\]; name some of q_proj"),
        (1, (), r"targets are \[\]"),
    ],
)
def test_a_wrong_adapter_is_refused(rank, targets, message):
    with pytest.raises(ValueError, match=message):
        LoraConfig(rank, 1.0, targets)


def test_experts_have_no_adapters():
    with pytest.raises(ValueError, match="beside experts only q_proj"):
        dataclasses.replace(MOE, lora=LORA)


MOE = ModelConfig(
    family="qwen3_moe",
    vocab_size=32,
    width=16,
    num_layers=1,
    num_heads=2,
    num_kv_heads=2,
    head_dim=8,
    mlp_width=8,
    num_experts=4,
    experts_per_token=2,
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_peft_loads_the_adapter_and_computes_the_same(base, trained, run, tmp_path):
    torch, peft = pytest.importorskip("torch"), pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    lora.save_adapter(trained, LORA, tmp_path / "adapter", base=str(GOLDEN))
    model = AutoModelForCausalLM.from_pretrained(GOLDEN, attn_implementation="eager")
    model = peft.PeftModel.from_pretrained(model, tmp_path / "adapter")
    tokens, positions, _ = (torch.tensor(x.astype(np.int64)) for x in ROWS)
    with torch.no_grad():
        theirs = model(input_ids=tokens, position_ids=positions).logits.numpy()
    ours = run[0](lora.join(base, trained)) @ head(base, PLAIN)
    assert np.abs(ours - theirs).max() < 2e-4
