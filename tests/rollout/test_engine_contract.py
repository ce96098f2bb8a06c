"""What every Engine keeps, whatever is behind it."""

import asyncio

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentic_jax.models.config import ModelConfig
from agentic_jax.models.transformer import Transformer
from agentic_jax.rollout.engine import EngineError, SamplingParams
from agentic_jax.rollout.jax_engine import JaxEngine
from agentic_jax.rollout.scripted import ScriptedEngine

CONFIG = ModelConfig(
    family="llama",
    vocab_size=32,
    width=16,
    num_layers=1,
    num_heads=2,
    num_kv_heads=1,
    head_dim=8,
    mlp_width=16,
)


def make_params():
    ids = jnp.zeros((1, 2), jnp.int32)
    return jax.jit(Transformer(CONFIG).init)(jax.random.key(0), ids, ids, ids)["params"]


def jax_engine(deterministic):
    options = {"rows": 2, "length": 32, "chunk": 4, "prefill_chunk": 4}
    return JaxEngine(make_params(), CONFIG, deterministic=deterministic, **options)


MAKERS = {
    "deterministic": lambda: jax_engine(True),
    "fast": lambda: jax_engine(False),
    "scripted": lambda: ScriptedEngine(lambda ids: [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]),
}
PROMPT = [5, 6, 7, 8, 9]


@pytest.fixture(scope="module", params=MAKERS)
def engine(request):
    engine = MAKERS[request.param]()
    yield engine
    asyncio.run(engine.close())


def generate(engine, token_ids=PROMPT, session="s", **options):
    async def main():
        params = SamplingParams(**{"max_tokens": 8, **options})
        done = await engine.generate(token_ids, params, session=session)
        await engine.release(session)
        return done

    return asyncio.run(main())


def test_a_completion_is_int32_ids_and_one_float32_logprob_each(engine):
    done = generate(engine)
    assert done.token_ids.dtype == np.int32 and done.logprobs.dtype == np.float32
    assert done.token_ids.shape == done.logprobs.shape == (8,)
    assert np.all(done.logprobs <= 0) and done.stop == "length"


@pytest.mark.parametrize("max_tokens", [1, 5])
def test_max_tokens_ends_with_length(engine, max_tokens):
    done = generate(engine, max_tokens=max_tokens)
    assert len(done.token_ids) == max_tokens and done.stop == "length"


def test_the_same_request_gives_the_same_answer(engine):
    first, second = (generate(engine, seed=7, session=s) for s in "ab")
    np.testing.assert_array_equal(first.token_ids, second.token_ids)
    np.testing.assert_array_equal(first.logprobs, second.logprobs)


def test_prompts_are_lists_or_arrays(engine):
    as_list = generate(engine, PROMPT, seed=1)
    as_array = generate(engine, np.array(PROMPT), seed=1)
    np.testing.assert_array_equal(as_list.token_ids, as_array.token_ids)


@pytest.mark.parametrize(
    "token_ids, max_tokens, message", [([], 8, "empty"), (PROMPT, 0, "max_tokens is 0")]
)
def test_impossible_requests_are_value_errors(engine, token_ids, max_tokens, message):
    with pytest.raises(ValueError, match=message):
        generate(engine, token_ids, max_tokens=max_tokens)


def test_many_sessions_at_once_each_get_an_answer(engine):
    async def one(i):
        params = SamplingParams(max_tokens=6, seed=i)
        done = await engine.generate([i, i + 1], params, session=str(i))
        await engine.release(str(i))
        return len(done.token_ids)

    async def main():
        return await asyncio.gather(*(one(i) for i in range(7)))

    assert asyncio.run(main()) == [6] * 7


def test_releasing_an_unknown_session_is_ignored(engine):
    asyncio.run(engine.release("never seen"))


def test_later_completions_carry_the_new_version(engine):
    asyncio.run(engine.update_weights(make_params(), 41))
    assert generate(engine).weight_version == 41


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_closed_engine_raises(make):
    engine = make()
    asyncio.run(engine.close())
    with pytest.raises(EngineError, match="closed"):
        generate(engine)
