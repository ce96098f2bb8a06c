"""Grouped-query attention with rotary positions."""

import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from agentic_jax.models.config import ModelConfig
from agentic_jax.models.mlp import linear, rms_norm

# (q [B, T, H, Dh], k [B, T, KV, Dh], v [B, T, KV, Dh]) -> (attended [B, T, H, Dh], aux)
# with queries and keys normed and rotated; aux is whatever the caller wants back.
Attend = Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, Any]]


class Attention(nn.Module):
    """Projects to heads, rotates, attends as told, and projects back."""

    config: ModelConfig

    @nn.compact
    def __call__(
        self, x: jax.Array, cos_sin: tuple[jax.Array, jax.Array], attend: Attend
    ) -> tuple[jax.Array, Any]:
        """What attention adds to the residual stream.

        Args:
            x: [B, T, D] normed residual stream.
            cos_sin: two [B, T, Dh / 2], from rotary_cos_sin.
            attend: the attention itself: over the same tokens or over a cache.

        Returns:
            [B, T, D], and attend's second result.
        """
        config, dim = self.config, self.config.head_dim
        bias = config.attention_bias
        q = linear(config, (config.num_heads, dim), name="q", bias=bias)(x)
        k = linear(config, (config.num_kv_heads, dim), name="k", bias=bias)(x)
        v = linear(config, (config.num_kv_heads, dim), name="v", bias=bias)(x)
        if config.qk_norm:
            q = rms_norm(config, name="q_norm")(q)
            k = rms_norm(config, name="k_norm")(k)
        out, aux = attend(rotate(q, *cos_sin), rotate(k, *cos_sin), v)
        output = linear(
            config,
            config.width,
            name="o",
            bias=config.output_bias,
            axis=(-2, -1),
            into_residual=True,
        )
        return output(out), aux


def plain_attention(
    q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array
) -> jax.Array:
    """Attention in plain JAX, with all [B, H, T, S] weights in memory at one time.

        out_t = sum_s softmax_s(q_t . k_s / sqrt(Dh)) v_s   over s where mask[t, s]

    The softmax is taken in float32, or in float64 if that is what comes in.

    Args:
        q: [B, T, H, Dh].
        k: [B, S, KV, Dh]; query heads h * H / KV ... share key head h, never copied.
        v: [B, S, KV, Dh].
        mask: [B, T, S] bool, True where t may see s. A row of False attends to all
            alike, so nothing is NaN.

    Returns:
        [B, T, H, Dh] in q's dtype.
    """
    batch, length, heads, dim = q.shape
    kv_heads = k.shape[2]
    q = (q * dim**-0.5).reshape(batch, length, kv_heads, heads // kv_heads, dim)
    logits = jnp.einsum("btkgd,bskd->bkgts", q, k)
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    lowest = jnp.finfo(logits.dtype).min
    probs = jax.nn.softmax(jnp.where(mask[:, None, None], logits, lowest), axis=-1)
    out = jnp.einsum("bkgts,bskd->btkgd", probs.astype(v.dtype), v)
    return out.reshape(batch, length, heads, dim)


def attention_mask(segment_ids: jax.Array, positions: jax.Array) -> jax.Array:
    """[B, T, T] bool: query t may see key s of its own segment and not after it.

    Args:
        segment_ids: [B, T] int32; padding (0) sees only padding.
        positions: [B, T] int32 position within the segment.
    """
    same = segment_ids[:, :, None] == segment_ids[:, None, :]
    return same & (positions[:, None, :] <= positions[:, :, None])


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """x [B, T, H, Dh] with dimensions i and i + Dh / 2 rotated as pairs, in x's dtype.

    Args:
        x: queries or keys.
        cos: [B, T, Dh / 2].
        sin: [B, T, Dh / 2].

    Source: RoPE (arXiv:2104.09864), eq. 15; the half-split pairing of Hugging Face.
    """
    a, b = jnp.split(x, 2, axis=-1)
    cos, sin = cos[:, :, None, :], sin[:, :, None, :]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(x.dtype)


def rotary_cos_sin(
    positions: jax.Array, config: ModelConfig
) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine of each position's angles, float32, two [B, T, Dh / 2].

    Args:
        positions: [B, T] int32.
        config: theta and its scaling; yarn's attention_factor is multiplied in.
    """
    frequencies = jnp.asarray(rotary_frequencies(config), jnp.float32)
    angles = positions[:, :, None].astype(jnp.float32) * frequencies[None, None, :]
    scale = config.rope_scaling.attention_factor if config.rope_scaling else 1.0
    return jnp.cos(angles) * scale, jnp.sin(angles) * scale


def rotary_frequencies(config: ModelConfig) -> np.ndarray:
    """[Dh / 2] float64 radians per position, scaled as the config says.

        f_i = theta ** (-2 i / Dh)

    Source: RoPE (arXiv:2104.09864); YaRN (arXiv:2309.00071), section 3.2; Llama 3.1's
    ramp as in its published configs.
    """
    half = config.head_dim // 2
    frequencies = config.rope_theta ** (-np.arange(half) / half)
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    if scaling.kind == "llama3":
        turns = scaling.original_max_positions * frequencies / (2 * math.pi)
        low, high = scaling.low_freq_factor, scaling.high_freq_factor
        kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    else:
        kept = 1.0 - _yarn_ramp(config)
    return kept * frequencies + (1.0 - kept) * frequencies / scaling.factor


def _yarn_ramp(config: ModelConfig) -> np.ndarray:
    """[Dh / 2] share of each dimension that is interpolated, from 0 up to 1."""
    scaling, dim = config.rope_scaling, config.head_dim

    def dimension(turns: float) -> float:
        wavelength = scaling.original_max_positions / (2 * math.pi * turns)
        return dim * math.log(wavelength) / (2 * math.log(config.rope_theta))

    low, high = dimension(scaling.beta_fast), dimension(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    return np.clip((np.arange(dim // 2) - low) / max(high - low, 1e-3), 0.0, 1.0)
