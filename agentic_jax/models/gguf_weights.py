"""Configs and weights of llama.cpp's GGUF files, in Hugging Face's names."""

import os
from typing import Any

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

from agentic_jax.models.config import ModelConfig

_FAMILIES = ("llama", "qwen2", "qwen3")
_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def open_gguf(path: str | os.PathLike) -> GGUFReader:
    """The file, mapped into memory.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not a GGUF file, or one that is cut short.
    """
    if not os.path.isfile(path):
        raise FileNotFoundError(f"no GGUF file {path}")
    try:
        return GGUFReader(path)
    except (ValueError, IndexError, KeyError) as error:
        raise ValueError(f"{path} is no whole GGUF file: {error}") from error


def metadata(reader: GGUFReader) -> dict[str, Any]:
    """Every key of the file with its plain Python value."""
    return {key: field.contents() for key, field in reader.fields.items()}


def read_config(reader: GGUFReader) -> ModelConfig:
    """The model that the file's metadata describes, in float32.

    Raises:
        ValueError: an architecture or rope scaling that is not supported, or a missing
            key.
    """
    meta = metadata(reader)
    family = meta.get("general.architecture")
    if family not in _FAMILIES:
        raise ValueError(
            f"unsupported GGUF architecture {family!r}; "
            f"supported: {', '.join(_FAMILIES)}"
        )
    names = {tensor.name for tensor in reader.tensors}
    scaling = meta.get(f"{family}.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in names:
        raise ValueError(
            f"unsupported rope scaling {scaling!r} in a GGUF file; "
            "start from the model's Hugging Face directory"
        )
    try:
        width = meta[f"{family}.embedding_length"]
        num_heads = meta[f"{family}.attention.head_count"]
        rms_norm_eps = meta[f"{family}.attention.layer_norm_rms_epsilon"]
        return ModelConfig(
            family=family,
            vocab_size=len(meta["tokenizer.ggml.tokens"]),
            width=width,
            num_layers=meta[f"{family}.block_count"],
            num_heads=num_heads,
            num_kv_heads=meta.get(f"{family}.attention.head_count_kv", num_heads),
            head_dim=meta.get(f"{family}.attention.key_length", width // num_heads),
            mlp_width=meta[f"{family}.feed_forward_length"],
            rope_theta=float(meta.get(f"{family}.rope.freq_base", 10_000.0)),
            rms_norm_eps=float(f"{rms_norm_eps:.6g}"),  # Stored as float32.
            tie_embeddings="output.weight" not in names,
            attention_bias="blk.0.attn_q.bias" in names,
            qk_norm=family == "qwen3",
            max_positions=meta[f"{family}.context_length"],
            bos_token_id=meta.get("tokenizer.ggml.bos_token_id"),
            eos_token_ids=(meta["tokenizer.ggml.eos_token_id"],),
            pad_token_id=meta.get("tokenizer.ggml.padding_token_id"),
        )
    except KeyError as error:
        raise ValueError(f"the GGUF file lacks {error}") from error


def read_tensors(reader: GGUFReader, config: ModelConfig) -> dict[str, np.ndarray]:
    """Hugging Face's name -> float32 tensor, dequantised.

    llama.cpp stores the query and key rows of Llama with the two halves of each head
    interleaved; they are put back into the half-split order.

    Raises:
        ValueError: a tensor that no supported model has, or a quantisation that the
            gguf package cannot undo.
    """
    tensors = {}
    for tensor in reader.tensors:
        name = _hf_name(tensor.name)
        shape = tuple(int(size) for size in reversed(tensor.shape))
        try:
            weight = dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        except NotImplementedError as error:
            kind = tensor.tensor_type.name
            raise ValueError(f"cannot dequantise {tensor.name} ({kind})") from error
        if config.family == "llama" and ".q_proj." in name:
            weight = _split_halves(weight, config.num_heads)
        if config.family == "llama" and ".k_proj." in name:
            weight = _split_halves(weight, config.num_kv_heads)
        tensors[name] = np.ascontiguousarray(weight, np.float32)
    return tensors


def _hf_name(name: str) -> str:
    if name in _TOP:
        return _TOP[name]
    prefix, *rest = name.split(".")
    if prefix != "blk" or len(rest) != 3 or rest[1] not in _IN_LAYER:
        raise ValueError(f"GGUF tensor {name!r} belongs to no supported model")
    layer, kind, part = rest
    return f"model.layers.{layer}.{_IN_LAYER[kind]}.{part}"


def _split_halves(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """[H * Dh, ...] rows of each head from (0, Dh/2, 1, Dh/2 + 1, ...) to order."""
    pairs = weight.reshape(num_heads, -1, 2, *weight.shape[1:])
    return np.moveaxis(pairs, 2, 1).reshape(weight.shape)
