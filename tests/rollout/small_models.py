"""Model directories that are made in a moment: random weights and a byte tokenizer."""

import dataclasses
import functools

import jax
import numpy as np

from agentic_jax.chat.tokenizer import train_tokenizer
from agentic_jax.losses.logprobs import token_logprobs
from agentic_jax.models import hf_weights
from agentic_jax.models.config import ModelConfig
from agentic_jax.models.publish import publish
from agentic_jax.models.transformer import Transformer, head

CONFIG = ModelConfig(
    family="qwen3",
    vocab_size=263,
    width=32,
    num_layers=1,
    num_heads=2,
    num_kv_heads=1,
    head_dim=16,
    mlp_width=48,
    qk_norm=True,
    tie_embeddings=True,
    max_positions=512,
)


def make_params(seed, config=CONFIG):
    rng = np.random.default_rng(seed)

    def make(path, leaf):
        if path[-1].key == "scale":
            return np.ones(leaf.shape, np.float32)
        return rng.normal(scale=0.3, size=leaf.shape).astype(np.float32)

    return jax.tree_util.tree_map_with_path(make, hf_weights.param_shapes(config))


def write_model(path, *, seed=0, **changes):
    """A Hugging Face directory of such a model; returns its path."""
    tokenizer = train_tokenizer((), vocab_size=CONFIG.vocab_size)
    config = with_eos(tokenizer, **changes)
    hf_weights.save(make_params(seed, config), config, path)
    tokenizer.save_pretrained(path)
    return path


def publish_model(directory, *, seed, version):
    """The same, written as a training run writes it."""
    tokenizer = train_tokenizer((), vocab_size=CONFIG.vocab_size)
    return publish(
        make_params(seed),
        with_eos(tokenizer),
        directory,
        version=version,
        dtype="float32",
        tokenizer=tokenizer,
    )


def with_eos(tokenizer, **changes):
    eos = (tokenizer.eos_token_id,)
    return dataclasses.replace(CONFIG, eos_token_ids=eos, **changes)


def score(path, token_ids, *, temperature):
    """[n] log-probability of each of up to 64 tokens, as training computes it."""
    config = hf_weights.read_config(path)
    params = hf_weights.load(path, config)
    tokens = np.zeros((1, 64), np.int32)
    tokens[0, : len(token_ids)] = token_ids
    positions = np.arange(64, dtype=np.int32)[None]
    segments = (positions < len(token_ids)).astype(np.int32)
    logits = _logits(params, tokens, positions, segments, config=config)
    scores = token_logprobs(logits, tokens, temperature=temperature)
    return np.array(scores[0, : len(token_ids)])


@functools.partial(jax.jit, static_argnames="config")
def _logits(params, *inputs, config):
    hidden = Transformer(config).apply({"params": params}, *inputs)
    return hidden @ head(params, config)
