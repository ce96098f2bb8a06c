"""Log-probabilities of given tokens and of the likeliest others, one row at a time."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from agentic_jax.models.config import ModelConfig
from agentic_jax.models.transformer import Params, Transformer, head


def score_tokens(
    params: Params,
    tokens: jax.Array,
    count: jax.Array,
    temperature: jax.Array,
    *,
    config: ModelConfig,
    top: int,
    block: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What the model makes of each token, given those before it.

    Args:
        params: of the Transformer.
        tokens: [T] int32; T is a multiple of `block`.
        count: how many of them are real; the rest is padding.
        temperature: [T] divides the logits that predict each token; above 0.
        config: of the model.
        top: how many of the likeliest tokens to give.
        block: tokens whose logits are held at a time.

    Returns:
        log-softmax of logits / temperature at each token [T], at the likeliest tokens
        [T, top], falling, and those tokens [T, top] int32. What stands at the first
        token and at padding means nothing.
    """
    positions = jnp.arange(tokens.size, dtype=jnp.int32)
    segments = (positions < count).astype(jnp.int32)
    hidden = Transformer(config).apply(
        {"params": params}, tokens[None], positions[None], segments[None]
    )[0]
    before = jnp.roll(hidden, 1, axis=0)  # The state that predicts each token.
    projection = head(params, config)

    def score_block(inputs):
        states, targets, divisors = inputs
        logits = jnp.matmul(states, projection, preferred_element_type=jnp.float32)
        logprobs = jax.nn.log_softmax(logits / divisors[:, None], axis=-1)
        at_target = jnp.take_along_axis(logprobs, targets[:, None], axis=-1)[:, 0]
        return at_target, *jax.lax.top_k(logprobs, top)

    blocks = jax.tree.map(
        lambda x: x.reshape(-1, block, *x.shape[1:]), (before, tokens, temperature)
    )
    scores = jax.lax.map(score_block, blocks)
    return jax.tree.map(lambda x: x.reshape(tokens.size, *x.shape[2:]), scores)


class Scorer:
    """score_tokens for sequences of up to `length` tokens, compiled once per `top`.

    Args:
        config: of the model.
        length: most tokens of a sequence.
    """

    def __init__(self, config: ModelConfig, *, length: int):
        block = min(length, 256)
        self._size = -(-length // block) * block
        self._most = config.vocab_size
        score = partial(score_tokens, config=config, block=block)
        self._score = jax.jit(score, static_argnames="top")

    def score(
        self,
        params: Params,
        token_ids: Sequence[int],
        temperature: Sequence[float],
        *,
        top: int,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of N tokens: log-probabilities [N], of the likeliest [N, top], and which.

        Args:
            params: of the Transformer.
            token_ids: [N] at most `length` ids.
            temperature: [N] of the logits that predict each of them; above 0.
            top: how many of the likeliest tokens to give, if the vocabulary has them.
        """
        count = len(token_ids)
        tokens = np.zeros(self._size, np.int32)
        divisors = np.ones(self._size, np.float32)
        tokens[:count], divisors[:count] = token_ids, temperature
        inputs = jax.device_put((tokens, np.int32(count), divisors))
        scores = jax.device_get(self._score(params, *inputs, top=min(top, self._most)))
        return tuple(x[:count] for x in scores)
