"""Makes the tiny models and their reference logits, with transformers and torch.

    python -m venv torchenv
    torchenv/bin/pip install torch==2.13.0 transformers==5.24.0
    torchenv/bin/python tests/golden_models/make.py

Each model is a Hugging Face directory beside this file; reference.npz in it holds
tokens, positions and float32 logits.
"""

import pathlib

import numpy as np

_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
MODELS = {  # name -> (family, rope scaling, tied head, attention_bias)
    "llama_llama3": ("llama", _LLAMA3, False, False),
    "llama_tied_bias": ("llama", None, True, True),
    "qwen2_tied": ("qwen2", None, True, None),
    "qwen2_linear": ("qwen2", {"rope_type": "linear", "factor": 2.0}, False, None),
    "qwen3_tied": ("qwen3", None, True, False),
    "qwen3_yarn": ("qwen3", _YARN, False, False),
    "qwen3_moe": ("qwen3_moe", None, False, False),
}
_EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "norm_topk_prob": True,
}


def make(name: str, path: pathlib.Path) -> None:
    """Writes one model with random weights of a size that makes logits differ."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    family, rope_scaling, tied, bias = MODELS[name]
    options = {} if bias is None else {"attention_bias": bias}
    if family == "qwen3_moe":
        options |= _EXPERTS
    config = AutoConfig.for_model(
        family,
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8 if family == "qwen2" else 16,
        max_position_embeddings=256,
        rms_norm_eps=1e-5,
        tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4}
        | (rope_scaling or {}),
        bos_token_id=1,
        eos_token_id=2,
        **options,
    )
    torch.manual_seed(list(MODELS).index(name))
    model = AutoModelForCausalLM.from_config(config).float()
    with torch.no_grad():
        for parameter in model.parameters():
            centre = 1.0 if parameter.ndim == 1 else 0.0
            parameter.copy_(centre + 0.2 * torch.randn(parameter.shape))
    model.save_pretrained(path)
    np.savez_compressed(path / "reference.npz", **reference(path))


def reference(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Tokens, positions and transformers' float32 logits of the model in `path`.

    Rows start at positions 0 and 100, as the second half of a long context would.
    """
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager"
    )
    tokens = np.random.default_rng(0).integers(0, model.config.vocab_size, (2, 40))
    positions = np.arange(40) + np.array([[0], [100]])
    with torch.no_grad():
        logits = model(
            input_ids=torch.tensor(tokens), position_ids=torch.tensor(positions)
        ).logits
    return {
        "tokens": tokens.astype(np.int32),
        "positions": positions.astype(np.int32),
        "logits": logits.numpy(),
    }


if __name__ == "__main__":
    for name in MODELS:
        make(name, pathlib.Path(__file__).parent / name)
