"""The hand-written gradient of log-probability and entropy, and what it keeps."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from agentic_jax.losses.logprobs import (
    chunked_logprobs_and_entropy,
    token_entropy,
    token_logprobs,
)
from agentic_jax.sharding import ROWS, make_mesh

RNG = np.random.default_rng(0)
HIDDEN = RNG.normal(size=(4, 8, 6))
HEAD = RNG.normal(size=(6, 22))
TOKENS = RNG.integers(0, 22, (4, 8)).astype(np.int32)
FACTORS = RNG.normal(size=(2, 4, 8))  # Of log-probabilities, of entropies.
FACTORS[:, :, 5] = 0.0  # A masked token.
HEAD_SPEC = P("fsdp", "tensor")


def total(function, hidden, head, factors):
    scores = function(hidden, head, TOKENS)
    return sum((a * b).sum() for a, b in zip(scores, factors, strict=True))


def chunked(hidden, head, tokens, **options):
    return chunked_logprobs_and_entropy(
        hidden, head, tokens, temperature=0.7, chunk=3, **options
    )


def plain(hidden, head, tokens):
    logits = jnp.matmul(hidden, head)
    return (
        token_logprobs(logits, tokens, temperature=0.7),
        token_entropy(logits, temperature=0.7),
    )


@functools.cache
def gradient(function):
    return jax.jit(jax.grad(functools.partial(total, function), (0, 1)))


def single(*arrays):
    return [np.asarray(x, np.float32) for x in arrays]


@pytest.mark.parametrize("part", ["logprobs", "entropy", "both"])
def test_gradient_is_that_of_the_plain_form(part):
    keep = {"logprobs": [1, 0], "entropy": [0, 1], "both": [1, 1]}[part]
    factors = FACTORS * np.reshape(keep, (2, 1, 1))
    inputs = single(HIDDEN, HEAD, factors)
    for mine, other in zip(
        gradient(chunked)(*inputs), gradient(plain)(*inputs), strict=True
    ):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)


def test_gradient_is_the_slope_of_the_value():
    with jax.enable_x64(True):
        value = jax.jit(functools.partial(total, chunked))
        grads = gradient(chunked)(HIDDEN, HEAD, FACTORS)
        directions = RNG.normal(size=HIDDEN.shape), RNG.normal(size=HEAD.shape)
        step = 1e-5
        ahead, behind = (
            value(HIDDEN + s * directions[0], HEAD + s * directions[1], FACTORS)
            for s in (step, -step)
        )
        slope = sum(np.sum(g * d) for g, d in zip(grads, directions, strict=True))
        np.testing.assert_allclose((ahead - behind) / (2 * step), slope, rtol=1e-6)


def test_a_token_without_cotangent_sends_no_gradient_to_its_state():
    # Token 5 is predicted by the state before it.
    d_hidden, _ = gradient(chunked)(*single(HIDDEN, HEAD, FACTORS))
    np.testing.assert_array_equal(d_hidden[:, 4], 0.0)
    np.testing.assert_array_equal(d_hidden[:, -1], 0.0)  # Predicts nothing.
    assert np.all(np.abs(d_hidden[:, 3]).max(-1) > 0)


def test_a_certain_token_has_an_entropy_of_zero():
    hidden, head = np.ones((1, 2, 1), np.float32), np.zeros((1, 22), np.float32)
    head[0, 3] = 140.0  # The other words are 200 nats behind.
    logprobs, entropy = chunked(hidden, head, np.array([[0, 3]], np.int32))
    # A logit of 200 has an error of 1e-5.
    np.testing.assert_allclose([logprobs[0, 1], entropy[0, 1]], 0.0, atol=3e-5)


@pytest.mark.parametrize(
    "axes",
    [
        {"data": 2, "fsdp": 2, "tensor": 2},
        {"fsdp": 2, "sequence": 2, "tensor": 2},
    ],
    ids=str,
)
def test_a_mesh_changes_neither_values_nor_gradients(axes):
    step, shardings = sharded_step(**axes)
    inputs = single(HIDDEN, HEAD, FACTORS)
    placed = jax.device_put(tuple(inputs), shardings)
    (value, grads), expected = step(*placed), gradient(plain)(*inputs)
    np.testing.assert_allclose(value, total(plain, *inputs), rtol=1e-5)
    for mine, other in zip(grads, expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)


@functools.cache
def sharded_step(**axes):
    mesh = make_mesh(axes, jax.devices()[: np.prod(list(axes.values()))])
    specs = P(*ROWS, None), HEAD_SPEC, P(None, *ROWS)
    shardings = tuple(NamedSharding(mesh, spec) for spec in specs)
    function = functools.partial(chunked, row_spec=ROWS, head_spec=HEAD_SPEC)
    step = jax.jit(
        jax.value_and_grad(functools.partial(total, function), (0, 1)),
        in_shardings=shardings,
        out_shardings=(None, shardings[:2]),
    )
    with jax.set_mesh(mesh):
        return step.lower(*single(HIDDEN, HEAD, FACTORS)).compile(), shardings


def test_devices_exchange_blocks_of_the_head_and_no_logits():
    step, _ = sharded_step(data=2, fsdp=2, tensor=2)
    lines = step.as_text().splitlines()
    gathers = [line for line in lines if " all-gather(" in line]
    # A device holds 11 words: 2 blocks of 4 and one of 3, each of width 6, in both
    # passes. Logits would be [1, 8, words].
    assert {line.split("f32")[1].split("{")[0] for line in gathers} == {
        "[4,6]",
        "[3,6]",
    }


def step_memory(function, tokens, words, width):
    """Bytes that a gradient step needs besides its arguments and results."""
    hidden = jax.ShapeDtypeStruct((1, tokens, width), jnp.float32)
    head = jax.ShapeDtypeStruct((width, words), jnp.float32)
    ids = jax.ShapeDtypeStruct((1, tokens), jnp.int32)

    def loss(hidden, head, ids):
        logprobs, entropy = function(hidden, head, ids)
        return logprobs.sum() + entropy.sum()

    compiled = jax.jit(jax.grad(loss, (0, 1))).lower(hidden, head, ids).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def test_memory_is_a_twentieth_of_the_plain_form_at_the_papers_size():
    blocks = functools.partial(chunked_logprobs_and_entropy, temperature=1.0, chunk=128)
    mine = step_memory(blocks, 16_384, 151_936, 1_024)
    assert mine < 0.05 * step_memory(plain, 16_384, 151_936, 1_024)
