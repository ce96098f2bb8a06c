import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentic_jax.models.attention import attention_mask, plain_attention
from agentic_jax.models.attention_kernels import make_attend
from agentic_jax.sharding import make_mesh

RNG = np.random.default_rng(0)


def rows(length, dim=8, kv_heads=2):
    """Queries, keys, values, segment ids and positions of two packed rows."""
    shapes = [(2, length, heads, dim) for heads in (4, kv_heads, kv_heads)]
    qkv = [RNG.normal(size=shape).astype(np.float32) for shape in shapes]
    cuts = (length // 3, length // 2, length - 3)  # Three segments, then padding.
    index = np.arange(length)
    segments = np.searchsorted(cuts, index, side="right") + 1
    starts = np.array([0, *cuts])[segments - 1]
    segments = np.where(segments == 4, 0, segments)
    ids, positions = (np.tile(x, (2, 1)).astype(np.int32) for x in (segments, index))
    return qkv, ids, positions - np.tile(starts, (2, 1)).astype(np.int32)


def value_and_gradient(attend, qkv, weights):
    def total(qkv):
        out = attend(*qkv)
        return (out * weights).sum(), out

    (_, out), grads = jax.value_and_grad(total, has_aux=True)(qkv)
    return (out, *grads)


def both(name, length, *, dim=8, **options):
    """Results and gradients of the kernel and of dense attention, padding left out."""
    qkv, ids, positions = rows(length, dim=dim)
    weights = RNG.normal(size=qkv[0].shape) * (ids > 0)[..., None, None]
    weights = weights.astype(np.float32)

    def dense(q, k, v):
        return plain_attention(q, k, v, attention_mask(ids, positions))

    def kernel(q, k, v):
        return make_attend(name, jnp.asarray(ids), **options)(q, k, v)

    found, expected = (
        jax.jit(functools.partial(value_and_gradient, attend))(qkv, weights)
        for attend in (kernel, dense)
    )
    real = (ids > 0)[..., None, None]
    return [(a * real, b * real) for a, b in zip(found, expected, strict=True)]


def on_mesh(axes):
    return jax.set_mesh(make_mesh(axes)) if axes else contextlib.nullcontext()


@pytest.mark.parametrize("mesh", [None, {"fsdp": 2, "tensor": 2, "sequence": 2}])
def test_chunked_attention_equals_dense_with_its_gradients(mesh):
    # 150 queries are a whole chunk of 128 and a part of one, 75 a part.
    with on_mesh(mesh):
        for found, expected in both("chunked", 150):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [None, {"fsdp": 2, "tensor": 2, "sequence": 2}])
def test_splash_attention_equals_dense_with_its_gradients(mesh):
    with on_mesh(mesh):
        pairs = both("splash", 256, dim=128, interpret=True)
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_splash_attention_says_which_rows_it_takes():
    with pytest.raises(ValueError, match="multiple of 128 tokens .*, not 150 over"):
        both("splash", 150)
