"""Published models by name, so that one can be planned for without a download.

Source: the config.json of Qwen/Qwen3-4B, Qwen/Qwen2.5-7B and Qwen/Qwen3-14B.
"""

from collections.abc import Mapping

from agentic_jax.models.config import ModelConfig

SHAPES: Mapping[str, ModelConfig] = {
    "qwen3_4b": ModelConfig(
        family="qwen3",
        vocab_size=151_936,
        width=2_560,
        num_layers=36,
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
        mlp_width=9_728,
        rope_theta=1e6,
        tie_embeddings=True,
        qk_norm=True,
        max_positions=40_960,
    ),
    "qwen2.5_7b": ModelConfig(
        family="qwen2",
        vocab_size=152_064,
        width=3_584,
        num_layers=28,
        num_heads=28,
        num_kv_heads=4,
        head_dim=128,
        mlp_width=18_944,
        rope_theta=1e6,
        attention_bias=True,
        max_positions=131_072,
    ),
    "qwen3_14b": ModelConfig(
        family="qwen3",
        vocab_size=151_936,
        width=5_120,
        num_layers=40,
        num_heads=40,
        num_kv_heads=8,
        head_dim=128,
        mlp_width=17_408,
        rope_theta=1e6,
        qk_norm=True,
        max_positions=40_960,
    ),
}
