"""Model directories that are made in a moment: random weights and a byte tokenizer."""

import dataclasses

import jax
import jax.numpy as jnp
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
    ids = jnp.zeros((1, 2), jnp.int32)
    init = jax.jit(Transformer(config).init)
    params = init(jax.random.key(seed), ids, ids, ids)["params"]
    # Wider embeddings make sharper distributions than a fresh model's.
    return jax.tree.map(lambda x: 4 * x, params)


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
    """[n] log-probability of each token of a sequence, as training computes it."""
    config = hf_weights.read_config(path)
    params = hf_weights.load(path, config)
    tokens = np.array(token_ids, np.int32)[None]
    positions = np.arange(tokens.size, dtype=np.int32)[None]

    @jax.jit
    def logits(params, *inputs):
        hidden = Transformer(config).apply({"params": params}, *inputs)
        return hidden @ head(params, config)

    found = logits(params, tokens, positions, np.ones_like(tokens))
    return np.array(token_logprobs(found, tokens, temperature=temperature)[0])
