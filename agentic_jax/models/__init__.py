"""Decoder-only transformers in flax.linen and their Hugging Face weights."""
