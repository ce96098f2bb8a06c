import asyncio
import dataclasses

import jax
import numpy as np
import pytest

from agentic_jax.models.scoring import Scorer
from agentic_jax.rollout.engine import Completion, SamplingParams
from agentic_jax.rollout.scripted import ScriptedEngine
from agentic_jax.rollout.turn import FleetTurn
from tests.rollout.small_engines import CONFIG, make_params, prompt, run

PARAMS = SamplingParams(max_tokens=9, temperature=0.7, seed=3, top_logprobs=4)


@pytest.fixture(scope="module")
def params():
    return make_params(0)


def test_the_likeliest_tokens_are_those_of_the_trainers_kernels(params):
    ids = prompt(0)
    done = run(params, lambda e: e.generate(ids, PARAMS, session="a"))
    every = [*ids.tolist(), *done.token_ids.tolist()]
    _, tops, _ = Scorer(CONFIG, length=64).score(params, every, [0.7] * 20, top=4)
    np.testing.assert_allclose(done.top_logprobs, tops[11:], rtol=1e-4)


def test_who_asks_samples_what_they_would_have_sampled_anyway(params):
    plain = dataclasses.replace(PARAMS, top_logprobs=0)

    async def both(engine):
        asked = engine.generate(prompt(0), PARAMS, session="a")
        other = engine.generate(prompt(1), plain, session="b")
        return await asyncio.gather(asked, other)

    asked, other = run(params, both)
    alone = run(params, lambda e: e.generate(prompt(0), plain, session="a"))
    assert other.top_logprobs is None and alone.top_logprobs is None
    np.testing.assert_array_equal(asked.token_ids, alone.token_ids)
    np.testing.assert_array_equal(asked.logprobs, alone.logprobs)
    assert asked.top_logprobs.shape == (9, 4)


def test_more_than_the_engine_tells_of_is_refused(params):
    many = dataclasses.replace(PARAMS, top_logprobs=11)
    with pytest.raises(ValueError, match="top_logprobs is 11; this engine tells"):
        run(params, lambda e: e.generate(prompt(0), many, session="a"))


def test_slices_of_a_fleets_turn_are_joined():
    turn = FleetTurn(np.array([1]), dataclasses.replace(PARAMS, max_tokens=3), "s")
    for ids in ([5, 6], [7]):
        top = -np.array([[i, 9, 9, 9] for i in ids], np.float32)
        done = Completion(np.array(ids), np.zeros(len(ids)), "length", 0, 0, top)
        turn.add(done, None)
    np.testing.assert_array_equal(turn.completion().top_logprobs[:, 0], [-5, -6, -7])


def test_a_scripted_engine_is_sure_of_every_token():
    engine = ScriptedEngine({"s": [[1, 2]]})
    done = asyncio.run(engine.generate([9], PARAMS, session="s"))
    np.testing.assert_array_equal(jax.nn.logsumexp(done.top_logprobs, axis=1), [0, 0])
