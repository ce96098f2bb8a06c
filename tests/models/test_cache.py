import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentic_jax.models.cache import cached_attention, init_cache
from agentic_jax.models.config import ModelConfig

attend = jax.jit(cached_attention)
B, T, H, KV, DH, S = 2, 3, 4, 2, 8, 16


def random_inputs(seed):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(B, T, H, DH)).astype(np.float32),
        rng.normal(size=(B, T, KV, DH)).astype(np.float32),
        rng.normal(size=(B, T, KV, DH)).astype(np.float32),
    )


def empty_cache():
    return (
        np.zeros((B, KV, DH, S), np.float32),
        np.zeros((B, KV, S, DH), np.float32),
    )


def plain_attention(q, keys, values):
    """[H, DH] output of one query over [n, KV, DH] keys, head by head in float64."""
    out = np.zeros((H, DH))
    for head in range(H):
        shared = head // (H // KV)
        logits = keys[:, shared].astype(float) @ q[head] / np.sqrt(DH)
        weights = np.exp(logits - logits.max())
        out[head] = weights @ values[:, shared] / weights.sum()
    return out


def test_equals_attention_written_as_loops():
    q, k, v = random_inputs(0)
    positions = np.tile(np.arange(T, dtype=np.int32), (B, 1))
    out, _, _ = attend(q, k, v, *empty_cache(), positions)
    for b in range(B):
        for t in range(T):
            expected = plain_attention(q[b, t], k[b, : t + 1], v[b, : t + 1])
            np.testing.assert_allclose(out[b, t], expected, rtol=1e-5, atol=1e-6)


def test_one_token_at_a_time_equals_all_at_once():
    q, k, v = random_inputs(1)
    starts = np.array([[0], [5]], dtype=np.int32)
    layer_k, layer_v = empty_cache()
    layer_k[1, :, :, :5], layer_v[1, :, :5] = 0.3, -0.7  # What came before.
    once, _, _ = attend(
        q, k, v, layer_k, layer_v, starts + np.arange(T, dtype=np.int32)
    )
    for t in range(T):
        part = (x[:, t : t + 1] for x in (q, k, v))
        out, layer_k, layer_v = attend(*part, layer_k, layer_v, starts + np.int32(t))
        np.testing.assert_allclose(out[:, 0], once[:, t], rtol=1e-5, atol=1e-6)


def test_padding_writes_nothing_and_stays_finite():
    q, k, v = random_inputs(2)
    positions = np.array([[0, S, S + 7], [S, S, S]], dtype=np.int32)
    out, layer_k, layer_v = attend(q, k, v, *empty_cache(), positions)
    assert np.isfinite(out).all()
    np.testing.assert_array_equal(layer_k[0, :, :, 0], k[0, 0])
    np.testing.assert_array_equal(layer_v[0, :, 0], v[0, 0])
    assert not np.any(layer_k[0, :, :, 1:]) and not np.any(layer_k[1])
    assert not np.any(layer_v[0, :, 1:]) and not np.any(layer_v[1])


def test_what_lies_beyond_the_position_is_not_seen():
    q, k, v = random_inputs(3)
    positions = np.tile(np.arange(T, dtype=np.int32), (B, 1))
    clean, _, _ = attend(q, k, v, *empty_cache(), positions)
    stale_k, stale_v = (x + 1e4 for x in empty_cache())
    stale, _, _ = attend(q, k, v, stale_k, stale_v, positions)
    np.testing.assert_array_equal(clean, stale)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_cache_has_one_array_a_layer_in_the_asked_dtype(dtype):
    config = ModelConfig(
        family="qwen3",
        vocab_size=32,
        width=16,
        num_layers=3,
        num_heads=H,
        num_kv_heads=KV,
        head_dim=DH,
        mlp_width=32,
    )
    cache = init_cache(config, rows=5, length=S, dtype=dtype)
    assert (cache.rows, cache.length) == (5, S)
    assert [x.shape for x in cache.k] == [(5, KV, DH, S)] * 3
    assert [x.shape for x in cache.v] == [(5, KV, S, DH)] * 3
    assert {x.dtype for x in jax.tree.leaves(cache)} == {jnp.dtype(dtype)}


def test_a_bfloat16_cache_keeps_the_dtype_of_the_query():
    q, k, v = (x.astype(jnp.bfloat16) for x in random_inputs(4))
    caches = (x.astype(jnp.bfloat16) for x in empty_cache())
    positions = np.tile(np.arange(T, dtype=np.int32), (B, 1))
    out, layer_k, layer_v = attend(q, k, v, *caches, positions)
    assert out.dtype == layer_k.dtype == layer_v.dtype == jnp.bfloat16
