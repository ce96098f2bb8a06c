import asyncio

import numpy as np
import pytest

from agentic_jax.rollout.engine import EngineError, SamplingParams
from agentic_jax.rollout.scripted import ScriptedEngine

PARAMS = SamplingParams(max_tokens=8)


def generate(engine, token_ids, session="s", params=PARAMS):
    return asyncio.run(engine.generate(token_ids, params, session=session))


def test_gives_each_session_its_replies_in_order():
    engine = ScriptedEngine({"a": ["hi", [7, 8]], "b": ["yo"]}, encode=str.encode)
    first, other, second = (generate(engine, [1], s) for s in "aba")
    assert bytes(first.token_ids.tolist()) == b"hi"
    assert bytes(other.token_ids.tolist()) == b"yo"
    np.testing.assert_array_equal(second.token_ids, [7, 8])
    assert second.token_ids.dtype == np.int32 and second.logprobs.dtype == np.float32
    assert not np.any(second.logprobs) and second.stop == "stop"


def test_a_function_sees_the_whole_context():
    engine = ScriptedEngine(lambda ids: ids[::-1])
    np.testing.assert_array_equal(generate(engine, [1, 2, 3]).token_ids, [3, 2, 1])


def test_a_long_reply_is_cut_at_max_tokens():
    engine = ScriptedEngine({"s": [[1, 2, 3]]})
    done = generate(engine, [1], params=SamplingParams(max_tokens=2))
    np.testing.assert_array_equal(done.token_ids, [1, 2])
    assert done.stop == "length"
    fits = generate(ScriptedEngine({"s": [[1, 2]]}), [1], params=SamplingParams(2))
    assert fits.stop == "stop"


def test_release_starts_the_script_again():
    engine = ScriptedEngine({"s": [[5]]})
    generate(engine, [1])
    with pytest.raises(EngineError, match="'s' has 1 replies"):
        generate(engine, [1])
    asyncio.run(engine.release("s"))
    np.testing.assert_array_equal(generate(engine, [1]).token_ids, [5])


def test_an_unknown_session_is_an_engine_error():
    with pytest.raises(EngineError, match="'z' has 0 replies"):
        generate(ScriptedEngine({}), [1], "z")
