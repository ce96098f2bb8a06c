import asyncio
import dataclasses
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentic_jax.rollout.engine import EngineError, SamplingParams
from tests.rollout.small_engines import (
    LONG,
    RESULT,
    SIZES,
    make_engine,
    make_params,
    prompt,
    run,
    run_behind_gate,
    together,
)


def test_cancelling_frees_the_row(params):
    async def play(engine, gate):
        tasks = [
            asyncio.ensure_future(engine.generate([i], LONG, session=str(i)))
            for i in range(4)
        ]
        await asyncio.to_thread(gate.reached.wait)  # Every row is taken.
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        gate.open.set()
        done = await engine.generate([9], LONG, session="next")
        return done, engine.stats()

    done, stats = run_behind_gate(params, play)
    assert len(done.token_ids) == 50
    assert stats["sampled_tokens"] < 4 * 50  # The cancelled ones did not run on.


def test_releasing_a_running_session_gives_what_it_has(params):
    async def play(engine, gate):
        running = asyncio.ensure_future(engine.generate([1], LONG, session="a"))
        await asyncio.to_thread(gate.reached.wait)
        await engine.release("a")
        gate.open.set()
        return await running

    done = run_behind_gate(params, play)
    assert done.stop == "abort"
    assert len(done.token_ids) == len(done.logprobs) == SIZES["chunk"]


def test_more_sessions_than_rows_wait_their_turn(params):
    async def play(engine):
        order = []

        async def one(i):
            await engine.generate([i], SamplingParams(4), session=str(i))
            order.append(i)
            await engine.release(str(i))

        await asyncio.gather(*(one(i) for i in range(9)))
        return order

    order = run(params, play)
    assert sorted(order[:4]) == [0, 1, 2, 3]  # There are four rows.
    assert sorted(order[4:]) == [4, 5, 6, 7, 8]


def test_the_event_loop_goes_on_while_the_engine_works(params):
    async def play(engine, gate):
        running = asyncio.ensure_future(engine.generate([1], LONG, session="a"))
        while not gate.reached.is_set():
            await asyncio.sleep(0)  # Would hang if the engine held the loop.
        pending = not running.done()
        gate.open.set()
        return pending, await running

    pending, done = run_behind_gate(params, play)
    assert pending and len(done.token_ids) == 50


def test_new_weights_wait_for_what_runs_and_forget_the_cache(params):
    other = make_params(1)
    options = dataclasses.replace(LONG, max_tokens=12, seed=3)

    async def play(engine, gate):
        running = asyncio.ensure_future(
            engine.generate(prompt(1), options, session="a")
        )
        await asyncio.to_thread(gate.reached.wait)
        update = asyncio.ensure_future(engine.update_weights(other, 5))
        await asyncio.sleep(0)
        later = asyncio.ensure_future(engine.generate(prompt(1), options, session="b"))
        gate.open.set()
        await update
        again = await engine.generate(prompt(1), options, session="a")
        return await running, await later, again

    before, later, again = run_behind_gate(params, play)

    async def play_once(engine, gate):
        gate.open.set()
        return await engine.generate(prompt(1), options, session="a")

    old, new = (run_behind_gate(p, play_once) for p in (params, other))
    assert [c.weight_version for c in (before, later, again)] == [0, 5, 5]
    assert not np.array_equal(old.token_ids, new.token_ids)
    np.testing.assert_array_equal(before.logprobs, old.logprobs)
    np.testing.assert_array_equal(later.logprobs, new.logprobs)
    np.testing.assert_array_equal(again.logprobs, new.logprobs)


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_paused_engine_takes_new_weights_and_recomputes_what_runs(
    params, deterministic
):
    other = make_params(1)
    options = SamplingParams(max_tokens=24, seed=3, stop_strings=("never",))

    async def play(engine, gate):
        running = asyncio.ensure_future(
            engine.generate(prompt(1), options, session="a")
        )
        ending = asyncio.ensure_future(engine.generate(prompt(1), options, session="b"))
        await asyncio.to_thread(gate.reached.wait)
        await engine.pause()
        update = asyncio.ensure_future(engine.update_weights(other, 5))
        gate.open.set()
        await update
        assert not running.done()
        await engine.release("b")  # Its row was emptied and is not filled again.
        assert (await ending).weight_version == 5
        assert engine.load().running == 1
        await engine.resume()
        done = await running
        context = np.concatenate([prompt(1), done.token_ids])
        more = dataclasses.replace(options, max_tokens=8)
        return done, await engine.generate(context, more, session="a")

    done, more = run_behind_gate(params, play, deterministic=deterministic)
    assert done.weight_version == 5

    async def play_whole(engine, gate):
        gate.open.set()
        return await engine.generate(prompt(1), options, session="a")

    async def play_rest(engine, gate):
        gate.open.set()
        context = np.concatenate([prompt(1), done.token_ids[: SIZES["chunk"]]])
        rest = dataclasses.replace(options, max_tokens=24 - SIZES["chunk"])
        first = await engine.generate(context, rest, session="a")
        context = np.concatenate([prompt(1), done.token_ids])
        more = dataclasses.replace(options, max_tokens=8)
        return first, await engine.generate(context, more, session="a")

    old = run_behind_gate(params, play_whole, deterministic=deterministic)
    rest, after = run_behind_gate(other, play_rest, deterministic=deterministic)
    np.testing.assert_array_equal(done.token_ids[:4], old.token_ids[:4])
    np.testing.assert_array_equal(done.token_ids[4:], rest.token_ids)
    np.testing.assert_allclose(done.logprobs[4:], rest.logprobs, atol=1e-5)
    np.testing.assert_array_equal(more.token_ids, after.token_ids)


def test_a_paused_engine_samples_nothing_and_says_what_it_holds(params):
    async def play(engine):
        await engine.pause()
        running = asyncio.ensure_future(
            engine.generate(prompt(1), SamplingParams(4), session="a")
        )
        await engine.forget_cache()  # Comes after the request.
        load = engine.load()
        await engine.resume()
        done = await running
        return load, done, engine.load()

    load, done, after = run(params, play)
    assert (load.running, load.waiting, load.used_tokens) == (0, 1, 0)
    assert load.capacity_tokens == SIZES["rows"] * SIZES["length"]
    assert len(done.token_ids) == 4 and (after.running, after.waiting) == (0, 0)


def test_completions_say_what_the_cache_held(params):
    async def play(engine):
        first = await engine.generate(prompt(2), SamplingParams(4), session="a")
        await engine.release("a")
        context = np.concatenate([prompt(2), first.token_ids, RESULT])
        again = await engine.generate(context, SamplingParams(4), session="b")
        await engine.forget_cache()
        anew = await engine.generate(context, SamplingParams(4), session="c")
        return [done.cached_tokens for done in (first, again, anew)]

    # All that was prefilled; sampled tokens too where rounding may differ.
    assert run(params, play) == [0, 10, 0]
    assert run(params, play, deterministic=False) == [0, 14, 0]


def test_weights_of_another_shape_are_refused(params):
    wider = {**params, "norm": {"scale": jnp.ones(33)}}
    with pytest.raises(ValueError, match=r"\['norm'\]\['scale'\].*\(33,\).*\(32,\)"):
        run(params, lambda engine: engine.update_weights(wider, 1))


def test_weights_are_not_copied(params):
    engine = make_engine(params)
    ours = engine._worker.programs._params["embed"]["embedding"]
    theirs = params["embed"]["embedding"]
    assert ours.unsafe_buffer_pointer() == theirs.unsafe_buffer_pointer()
    asyncio.run(engine.close())


def test_a_failure_on_the_thread_reaches_every_caller(params):
    def broken_decode(token_ids):
        raise LookupError("no such token")

    async def play(engine):
        options = SamplingParams(5, stop_strings=("x",))
        for _ in range(2):
            with pytest.raises(EngineError, match="has ended: no such token"):
                await engine.generate([1], options, session="a")

    run(params, play, decode=broken_decode)


def test_close_ends_the_thread_and_what_waits(params):
    async def main():
        threads = threading.active_count()
        engine = make_engine(params)
        running = asyncio.ensure_future(
            engine.generate([1], SamplingParams(60), session="a")
        )
        await asyncio.sleep(0)
        await engine.close()
        with pytest.raises(EngineError, match="closed"):
            await running
        await engine.close()
        await engine.release("a")
        return threading.active_count() - threads

    assert asyncio.run(main()) <= 1  # One that the loop keeps for itself.


def test_host_and_device_exchange_only_explicit_copies(params):
    with jax.transfer_guard("allow"):
        previous = jax.config.jax_transfer_guard
        jax.config.update("jax_transfer_guard", "disallow")  # On the thread too.
        try:
            played = run(params, lambda engine: together(engine, ["a", "b"]))
        finally:
            jax.config.update("jax_transfer_guard", previous)
    assert len(played) == 2
