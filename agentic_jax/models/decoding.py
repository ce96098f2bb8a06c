"""What an engine runs on the device: filling the cache, and sampling from it."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from agentic_jax.models.cache import KVCache
from agentic_jax.models.config import ModelConfig
from agentic_jax.models.sampling import position_uniforms, sample, top_logprobs
from agentic_jax.models.transformer import Params, forward_cached, head, unstack

TOP = 10  # How many of the likeliest tokens an engine can tell of.


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Draws:
    """What each of B rows is to sample next, every field [B] unless it says more.

    Attributes:
        token: int32 last known token, whose keys are not in the cache yet.
        position: int32 its index.
        left: int32 tokens still to sample; 0 is an idle row.
        seed: [B, 2] uint32, high and low half.
        temperature: float32; 0 is greedy.
        top_p: float32 in (0, 1].
        top_k: int32; 0 keeps all.
        stop_ids: [B, K] int32 tokens that end the row; -1 fills up.
        wants_top: bool, the likeliest tokens are asked for; costs a pass over the
            logits while any active row does.
    """

    token: jax.Array
    position: jax.Array
    left: jax.Array
    seed: jax.Array
    temperature: jax.Array
    top_p: jax.Array
    top_k: jax.Array
    stop_ids: jax.Array
    wants_top: jax.Array


def decode(
    params: Params,
    draws: Draws,
    cache: KVCache,
    *,
    config: ModelConfig,
    num_steps: int,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, KVCache]:
    """Samples up to num_steps tokens in each row; ends early when all rows are done.

    Args:
        params: of the Transformer.
        draws: of as many rows as the cache has.
        cache: holds every position before draws.position.
        config: of the model.
        num_steps: most tokens per row.

    Returns:
        tokens [num_steps, B] int32; log-probabilities [num_steps, B] float32 as
        `sample` defines them; those of the likeliest tokens [num_steps, B, TOP] (or V
        if that is less) where they are wanted; how many steps are real, [B] int32; and
        the cache, which then holds every token of each row but its last.
    """
    layers = unstack(params["layers"], config.num_layers)  # Once, not every step.
    params = {**params, "layers": layers}
    stored = {name: params[name] for name in ("embed", "head") if name in params}
    stored = jax.tree.map(lambda x: x.astype(config.dtype), stored)

    def step(carry):
        i, token, position, left, tokens, logprobs, tops, cache = carry
        active = left > 0
        at = jnp.where(active, position, cache.length)
        hidden, cache = forward_cached(
            params, config, token[:, None], at[:, None], cache
        )
        uniforms = position_uniforms(draws.seed, position + 1)
        options = draws.temperature, draws.top_p, draws.top_k
        # Transposed outside of the loop, a tied head would be a copy, and a slow one.
        projection = head(stored, config)
        logits = jnp.matmul(
            hidden[:, 0], projection, preferred_element_type=jnp.float32
        )
        sampled, logprob = sample(logits, uniforms, *options)
        top = jax.lax.cond(
            jnp.any(active & draws.wants_top),
            lambda: top_logprobs(logits, draws.temperature, top=tops.shape[-1]),
            lambda: jnp.zeros(tops.shape[1:], tops.dtype),
        )
        stopped = jnp.any(sampled[:, None] == draws.stop_ids, axis=-1)
        return (
            i + 1,
            jnp.where(active, sampled, token),
            position + active,
            jnp.where(active & ~stopped, left - 1, 0),
            tokens.at[i].set(sampled),
            logprobs.at[i].set(logprob),
            tops.at[i].set(top),
            cache,
        )

    def unfinished(carry):
        i, left = carry[0], carry[3]
        return (i < num_steps) & jnp.any(left > 0)

    tokens = jnp.zeros((num_steps, cache.rows), jnp.int32)
    logprobs = jnp.zeros((num_steps, cache.rows), jnp.float32)
    num_top = min(TOP, config.vocab_size)
    tops = jnp.zeros((num_steps, cache.rows, num_top), jnp.float32)
    start = (0, draws.token, draws.position, draws.left, tokens, logprobs, tops, cache)
    end = jax.lax.while_loop(unfinished, step, start)
    _, _, position, _, tokens, logprobs, tops, cache = end
    return tokens, logprobs, tops, position - draws.position, cache


def decode_part(
    params: Params,
    draws: Draws,
    rows: jax.Array,
    cache: KVCache,
    *,
    config: ModelConfig,
    num_steps: int,
    window: int,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, KVCache]:
    """`decode` of some rows and their first `window` positions, which costs less.

    Args:
        params: of the Transformer.
        draws: of R rows; position + min(left, num_steps) must not exceed `window`.
        rows: [R] int32 row of the cache of each, all different; the cache's number of
            rows marks an unused one.
        cache: holds every position before draws.position.
        config: of the model.
        num_steps: most tokens per row.
        window: how many positions are read, at most the cache's length.

    Returns:
        As decode, with R for B, and the whole cache.
    """
    part = _take(cache, rows, window)
    *sampled, part = decode(params, draws, part, config=config, num_steps=num_steps)
    return *sampled, _put(cache, rows, part)


def prefill(
    params: Params,
    tokens: jax.Array,
    positions: jax.Array,
    rows: jax.Array,
    cache: KVCache,
    *,
    config: ModelConfig,
    window: int,
) -> KVCache:
    """The cache with the keys and values of known tokens; nothing is sampled.

    Args:
        params: of the Transformer.
        tokens: [P, C] int32, in any order within a line.
        positions: [P, C] int32 index of each token; `window` and more is padding.
        rows: [P] int32 row of the cache that each line belongs to, all different; the
            cache's number of rows marks an unused line.
        cache: holds every earlier position of these rows.
        config: of the model.
        window: how many positions are read, at most the cache's length.
    """
    part = _take(cache, rows, window)
    _, part = forward_cached(params, config, tokens, positions, part)
    return _put(cache, rows, part)


def copy_rows(sources: jax.Array, targets: jax.Array, cache: KVCache) -> KVCache:
    """The cache with rows `sources` [P] int32 copied to rows `targets` [P] int32.

    All sources are read before a target is written. The cache's number of rows as a
    target marks an unused entry.
    """
    return _put(cache, targets, _take(cache, sources, cache.length))


def _take(cache: KVCache, rows: jax.Array, window: int) -> KVCache:
    """The first `window` positions of some rows; unknown rows give the last one."""
    return KVCache(
        k=tuple(k.at[rows, :, :, :window].get(mode="clip") for k in cache.k),
        v=tuple(v.at[rows, :, :window].get(mode="clip") for v in cache.v),
    )


def _put(cache: KVCache, rows: jax.Array, part: KVCache) -> KVCache:
    """The cache with `part` as the first positions of some rows; unknown ones drop."""
    window = part.length
    pairs_k = zip(cache.k, part.k, strict=True)
    pairs_v = zip(cache.v, part.v, strict=True)
    return KVCache(
        k=tuple(k.at[rows, :, :, :window].set(x, mode="drop") for k, x in pairs_k),
        v=tuple(v.at[rows, :, :window].set(x, mode="drop") for v, x in pairs_v),
    )
