import math

import pytest

from agentic_jax.models.config import ModelConfig, RopeScaling, from_hf, to_hf

HF = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 256,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def test_missing_settings_take_the_meaning_that_transformers_gives_them():
    config = from_hf(HF)
    assert (config.num_kv_heads, config.head_dim) == (4, 8)
    assert config.rope_theta == 10_000.0 and config.rope_scaling is None
    assert not config.tie_embeddings and config.eos_token_ids == ()


def test_old_and_new_rope_settings_are_read_alike():
    old = from_hf({**HF, "rope_theta": 5e5, "rope_scaling": LLAMA3})
    new = from_hf({**HF, "rope_parameters": {"rope_theta": 5e5, **LLAMA3}})
    assert old == new
    assert new.rope_theta == 5e5
    assert new.rope_scaling == RopeScaling("llama3", 8.0, 64, 1.0, 4.0)


def test_yarn_attention_factor_follows_from_the_factor():
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    scaling = from_hf({**HF, "rope_scaling": yarn}).rope_scaling
    assert scaling.attention_factor == pytest.approx(0.1 * math.log(4) + 1)


@pytest.mark.parametrize("family", ["LlamaForCausalLM", "Qwen2ForCausalLM"])
@pytest.mark.parametrize("eos", [None, 2, [2, 5]])
def test_writing_and_reading_gives_the_same_model(family, eos):
    hf = {**HF, "architectures": [family], "eos_token_id": eos, "rope_scaling": LLAMA3}
    config = from_hf(hf)
    assert from_hf(to_hf(config)) == config
    assert to_hf(config)["eos_token_id"] == eos


@pytest.mark.parametrize("key", ["num_experts", "num_local_experts"])
def test_experts_are_read_as_published_and_as_transformers_5_writes_them(key):
    experts = {key: 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    moe = {"architectures": ["Qwen3MoeForCausalLM"], "norm_topk_prob": True, **experts}
    config = from_hf({**HF, **moe, "mlp_only_layers": None})
    assert (config.num_experts, config.experts_per_token) == (8, 2)
    assert config.mlp_width == 16 and config.normalize_experts and config.qk_norm
    assert from_hf(to_hf(config)) == config


@pytest.mark.parametrize(
    "change, message",
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "supported: LlamaForCausalLM, Qwen2"),
        ({"architectures": None}, "unsupported architecture 'none'"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"mlp_bias": True}, "mlp_bias True"),
        ({"use_sliding_window": True}, "use_sliding_window True"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "'dynamic'; supported"),
        ({"num_attention_heads": 3, "num_key_value_heads": 2}, "num_heads 3"),
        ({"head_dim": 7}, "head_dim 7"),
        ({"decoder_sparse_step": 2}, "decoder_sparse_step 2"),
        ({"mlp_only_layers": [0]}, r"mlp_only_layers \[0\]"),
    ],
)
def test_what_is_not_supported_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        from_hf({**HF, **change})


def test_a_missing_key_is_named():
    with pytest.raises(ValueError, match="lacks 'hidden_size'"):
        from_hf({key: value for key, value in HF.items() if key != "hidden_size"})


@pytest.mark.parametrize(
    "change", [{"layer_loop": "loop"}, {"remat": "some"}, {"family": "gpt"}]
)
def test_unknown_names_are_refused(change):
    shape = dict.fromkeys(
        ["vocab_size", "width", "num_layers", "num_heads", "num_kv_heads"], 2
    )
    options = {"family": "llama", "head_dim": 2, "mlp_width": 2, **shape, **change}
    with pytest.raises(ValueError, match=rf"{next(iter(change))} is one of"):
        ModelConfig(**options)
