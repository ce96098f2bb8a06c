import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentic_jax.losses.logprobs import (
    chunked_logprobs_and_entropy,
    token_entropy,
    token_logprobs,
)

LOGITS = np.log(np.array([[[1.0, 3.0], [1.0, 1.0], [9.0, 1.0]]]))
TOKENS = np.array([[0, 1, 0]], np.int32)


def test_token_t_is_scored_by_the_logits_before_it():
    # Token 1 has id 1 and probability 3/4; token 2 has id 0 and probability 1/2.
    found = jax.jit(lambda x: token_logprobs(x, TOKENS, temperature=1.0))(LOGITS)
    np.testing.assert_allclose(found, [[0.0, np.log(0.75), np.log(0.5)]], rtol=1e-6)


def test_entropy_is_that_of_the_distribution_that_gave_the_token():
    # H(1/4, 3/4) = 0.25 ln 4 + 0.75 ln(4/3); H(1/2, 1/2) = ln 2.
    quarter = 0.25 * np.log(4) + 0.75 * np.log(4 / 3)
    found = jax.jit(lambda x: token_entropy(x, temperature=1.0))(LOGITS)
    np.testing.assert_allclose(found, [[0.0, quarter, np.log(2)]], rtol=1e-6)


def test_logprobs_and_entropy_use_the_sampling_temperature():
    # At T = 1/2 the odds 1:3 become 1:9.
    found = jax.jit(lambda x: token_logprobs(x, TOKENS, temperature=0.5))(LOGITS)
    np.testing.assert_allclose(found[0, 1], np.log(0.9), rtol=1e-6)
    entropy = jax.jit(lambda x: token_entropy(x, temperature=0.5))(LOGITS)
    expected = 0.1 * np.log(10) + 0.9 * np.log(10 / 9)
    np.testing.assert_allclose(entropy[0, 1], expected, rtol=1e-6)


def test_forbidden_tokens_add_nothing_to_entropy_or_its_gradient():
    logits = np.array([[[0.0, 0.0, -np.inf], [0.0, 0.0, 0.0]]], np.float32)
    value, grad = jax.jit(
        jax.value_and_grad(lambda x: token_entropy(x, temperature=1.0).sum())
    )(logits)
    np.testing.assert_allclose(value, np.log(2), rtol=1e-6)
    assert np.isfinite(grad).all()


@pytest.fixture(scope="module")
def states():
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(2, 7, 5)).astype(np.float32)
    head = rng.normal(size=(5, 11)).astype(np.float32)
    return hidden, head, rng.integers(0, 11, (2, 7)).astype(np.int32)


def chunked(hidden, head, tokens):
    return chunked_logprobs_and_entropy(hidden, head, tokens, temperature=0.7, chunk=3)


def plain(hidden, head, tokens):
    logits = jnp.matmul(hidden, head)
    return (
        token_logprobs(logits, tokens, temperature=0.7),
        token_entropy(logits, temperature=0.7),
    )


def test_chunks_change_no_value(states):
    for mine, other in zip(chunked(*states), plain(*states), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


def test_bfloat16_states_give_float32_results(states):
    hidden, head, tokens = states
    half = chunked(hidden.astype(jnp.bfloat16), head.astype(jnp.bfloat16), tokens)
    assert {x.dtype for x in half} == {jnp.dtype("float32")}
    # Inputs have 8 bits; logits reach 8 in size.
    np.testing.assert_allclose(half[0], plain(*states)[0], atol=0.1)


def test_rejects_an_empty_chunk(states):
    with pytest.raises(ValueError, match="chunk is 0"):
        chunked_logprobs_and_entropy(*states, temperature=1.0, chunk=0)
