import asyncio
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentic_jax.losses.logprobs import token_logprobs
from agentic_jax.models.transformer import Transformer, head
from agentic_jax.rollout.engine import EngineError, SamplingParams
from agentic_jax.rollout.jax_engine import JaxEngine
from tests.rollout.small_engines import (
    CASES,
    CONFIG,
    RESULT,
    SIZES,
    decode,
    make_engine,
    one_by_one,
    prompt,
    run,
    together,
)


@pytest.fixture(scope="module")
def alone(params):
    """Each case played on its own, nothing shared."""
    out = {}
    for name in CASES:
        out |= run(params, functools.partial(one_by_one, names=[name]))
    return out


def assert_same_bits(played, expected):
    for name, completions in played.items():
        for done, wanted in zip(completions, expected[name], strict=True):
            np.testing.assert_array_equal(done.token_ids, wanted.token_ids)
            np.testing.assert_array_equal(done.logprobs, wanted.logprobs)
            assert done.stop == wanted.stop


@pytest.mark.parametrize("order", ["abcdef", "fedcba", "cafebd", "dddd"])
@pytest.mark.parametrize("play", [one_by_one, together])
def test_deterministic_bits_do_not_depend_on_company_order_or_row(
    params, alone, play, order
):
    names = list(dict.fromkeys(order))
    assert_same_bits(run(params, lambda engine: play(engine, names)), alone)


def test_deterministic_bits_do_not_depend_on_when_the_host_looks(params, alone):
    played = run(params, lambda engine: together(engine, list(CASES)), chunk=3)
    assert_same_bits(played, alone)


def test_fast_mode_samples_the_same_tokens_up_to_rounding(params, alone):
    played = run(
        params, lambda engine: together(engine, list(CASES)), deterministic=False
    )
    same = 0
    for name, completions in played.items():
        for done, wanted in zip(completions, alone[name], strict=True):
            if np.array_equal(done.token_ids, wanted.token_ids):
                np.testing.assert_allclose(done.logprobs, wanted.logprobs, atol=1e-5)
                same += 1
    assert same >= 11  # Of 12: a draw may lie within rounding of a boundary.


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("deterministic", [True, False])
def test_log_probabilities_are_those_of_the_training_forward(
    params, deterministic, temperature
):
    async def play(engine):
        options = SamplingParams(max_tokens=20, seed=3, temperature=temperature)
        context = prompt(8, size=13)
        done = await engine.generate(context, options, session="s")
        context = np.concatenate([context, done.token_ids, RESULT])
        more = await engine.generate(context, options, session="s")
        return np.concatenate([context, more.token_ids]), done, more

    tokens, done, more = run(params, play, deterministic=deterministic)
    ones, positions = np.ones((1, len(tokens)), np.int32), np.arange(len(tokens))
    hidden = jax.jit(lambda p, *a: Transformer(CONFIG).apply({"params": p}, *a))(
        params, tokens[None], positions[None].astype(np.int32), ones
    )
    logits = jax.jit(lambda p, h: h @ head(p, CONFIG))(params, hidden)
    expected = token_logprobs(logits, tokens[None], temperature=temperature)[0]
    np.testing.assert_allclose(done.logprobs, expected[13:33], atol=1e-4)
    np.testing.assert_allclose(more.logprobs, expected[38:], atol=1e-4)
    assert done.logprobs.min() < -0.5  # Not a model that is sure of everything.


def test_a_group_prefills_its_prompt_once_and_turns_reuse_the_cache(params):
    async def play(engine):
        before = engine.stats()
        context = prompt(2, size=33)
        options = SamplingParams(max_tokens=8)

        async def one(seed):
            options_of_one = dataclasses.replace(options, seed=seed)
            session = str(seed)
            done = await engine.generate(context, options_of_one, session=session)
            longer = np.concatenate([context, done.token_ids, RESULT])
            await engine.generate(longer, options_of_one, session=session)
            await engine.release(session)

        await asyncio.gather(*(one(seed) for seed in range(4)))
        return {name: n - before[name] for name, n in engine.stats().items()}

    stats = run(params, play)
    # The prompt's first 32 tokens once; then each of 4 sessions prefills its last
    # sampled token and 4 of the 5 of the result: decoding consumes the fifth.
    assert stats["prefilled_tokens"] == 32 + 4 * 5
    assert stats["reused_tokens"] == 3 * 32 + 4 * (33 + 8 + 4 - 5)
    assert stats["sampled_tokens"] == 4 * 16
    assert stats["finished_requests"] == 8


@pytest.mark.parametrize("deterministic", [True, False])
def test_nothing_compiles_after_the_warm_up(params, deterministic):
    async def play(engine):
        await engine.warm_up()
        before = engine.stats()["compilations"]
        await together(engine, list(CASES))
        await engine.update_weights(jax.tree.map(lambda x: x + 0, params), 1)
        await together(engine, list(CASES))
        return before, engine.stats()["compilations"]

    before, after = run(params, play, deterministic=deterministic)
    assert before == after > 0


def test_a_stop_id_stays_in_the_ids(params):
    async def play(engine):
        free = await engine.generate(prompt(6), SamplingParams(20), session="a")
        stop_id = int(free.token_ids[5])
        options = SamplingParams(20, stop_token_ids=(63, stop_id))
        return free, await engine.generate(prompt(6), options, session="b"), stop_id

    free, done, stop_id = run(params, play)
    end = free.token_ids.tolist().index(stop_id) + 1
    np.testing.assert_array_equal(done.token_ids, free.token_ids[:end])
    assert done.stop == "stop" and free.stop == "length"


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_stop_string_rolls_the_cache_back(params, deterministic):
    async def play(engine):
        free = await engine.generate(prompt(6), SamplingParams(20), session="a")
        text = decode(free.token_ids)
        string = text[8:11]  # In the middle of a chunk of 4.
        options = SamplingParams(20, stop_strings=("@@", string))
        done = await engine.generate(prompt(6), options, session="b")
        context = np.concatenate([prompt(6), done.token_ids])
        after = await engine.generate(context, SamplingParams(6), session="b")
        return free, done, text.index(string) + 3, after

    free, done, end, after = run(params, play, deterministic=deterministic)
    np.testing.assert_array_equal(done.token_ids, free.token_ids[:end])
    assert done.stop == "stop"
    # With the same seed and position, sampling goes on where the string cut it off.
    np.testing.assert_array_equal(after.token_ids, free.token_ids[end : end + 6])


def test_options_of_one_request_do_not_touch_another(params):
    async def play(engine):
        greedy = SamplingParams(10, temperature=0.0)
        options = (
            SamplingParams(10, seed=1),
            greedy,
            SamplingParams(10, seed=1, temperature=0.5, top_p=0.9),
            SamplingParams(10, seed=9, top_k=1),
        )
        return await asyncio.gather(
            *(
                engine.generate(prompt(1), o, session=str(i))
                for i, o in enumerate(options)
            )
        )

    plain, greedy, _, top_one = run(params, play)
    np.testing.assert_array_equal(greedy.token_ids, top_one.token_ids)
    again = run(
        params,
        lambda e: e.generate(prompt(1), SamplingParams(10, seed=1), session="x"),
    )
    np.testing.assert_array_equal(plain.token_ids, again.token_ids)
    np.testing.assert_array_equal(plain.logprobs, again.logprobs)


def test_nan_logits_fail_the_requests_and_not_the_engine(params):
    broken = jax.tree.map(lambda x: x * jnp.nan, params)

    async def play(engine):
        await engine.update_weights(broken, 1)
        with pytest.raises(EngineError, match="weight version 1 are NaN"):
            await engine.generate([1, 2, 3], SamplingParams(5), session="a")
        await engine.update_weights(params, 2)
        return await engine.generate([1, 2, 3], SamplingParams(5), session="a")

    done = run(params, play)
    assert np.isfinite(done.logprobs).all() and done.weight_version == 2


@pytest.mark.parametrize(
    "token_ids, options, message",
    [
        ([], {}, "prompt is empty"),
        ([1] * 60, {}, r"60 tokens and max_tokens 5 need 65 .* length is 64"),
        ([64], {}, "64 to 64 do not lie in the vocabulary of 64"),
        ([1], {"max_tokens": 0}, "max_tokens is 0"),
        ([1], {"temperature": -1.0}, "-1.0, 1.0 and 0"),
        ([1], {"top_p": 0.0}, "1.0, 0.0 and 0"),
        ([1], {"seed": -1}, "seed -1"),
        ([1], {"stop_token_ids": tuple(range(9))}, "9 stop ids; at most 8"),
        ([1], {"stop_strings": ("",)}, "stop string is empty"),
    ],
)
def test_impossible_requests_are_value_errors(params, token_ids, options, message):
    sampling = SamplingParams(**{"max_tokens": 5, **options})

    async def play(engine):
        with pytest.raises(ValueError, match=message):
            await engine.generate(token_ids, sampling, session="a")

    run(params, play)


def test_stop_strings_need_a_decoder(params):
    async def play(engine):
        with pytest.raises(ValueError, match="decode="):
            await engine.generate(
                [1], SamplingParams(5, stop_strings=("x",)), session="a"
            )

    run(params, play, decode=None)


def test_sizes_below_one_are_refused(params):
    with pytest.raises(ValueError, match="rows, .* are 0, 64, 4, 8, 2"):
        make_engine(params, rows=0)


@pytest.mark.slow
@pytest.mark.parametrize("spec", [(), ("fsdp",)])
def test_weights_on_a_mesh_are_used_where_they_lie(params, alone, spec):
    axes = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((2,), ("fsdp",), axis_types=axes, devices=jax.devices()[:2])
    place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
    sharded = jax.device_put(params, place)
    engine = make_engine(sharded)
    played = asyncio.run(together(engine, ["a", "e"]))
    asyncio.run(engine.close())
    for name, completions in played.items():
        for done, wanted in zip(completions, alone[name], strict=True):
            np.testing.assert_array_equal(done.token_ids, wanted.token_ids)
            np.testing.assert_allclose(done.logprobs, wanted.logprobs, atol=1e-5)


@pytest.mark.slow
def test_bfloat16_is_near_float32_and_has_a_bfloat16_cache(params):
    config = dataclasses.replace(CONFIG, dtype="bfloat16")
    engine = JaxEngine(params, config, deterministic=True, **SIZES)
    options = SamplingParams(max_tokens=20, seed=3)
    done = asyncio.run(engine.generate(prompt(8), options, session="a"))
    assert {x.dtype for x in engine._worker.programs._cache.k} == {
        jnp.dtype("bfloat16")
    }
    asyncio.run(engine.close())
    tokens = np.concatenate([prompt(8), done.token_ids])[None]
    ones, positions = np.ones_like(tokens), np.arange(tokens.size, dtype=np.int32)[None]
    hidden = jax.jit(lambda p, *a: Transformer(CONFIG).apply({"params": p}, *a))(
        params, tokens, positions, ones
    )
    logits = jax.jit(lambda p, h: h @ head(p, CONFIG))(params, hidden)
    expected = token_logprobs(logits, tokens, temperature=1.0)[0, len(prompt(8)) :]
    assert done.logprobs.dtype == np.float32
    np.testing.assert_allclose(done.logprobs, expected, atol=0.15)
    assert np.abs(done.logprobs - expected).mean() < 0.05
