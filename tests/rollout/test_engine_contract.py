"""What every Engine keeps, whatever is behind it."""

import asyncio
import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from agentic_jax.models import hf_weights
from agentic_jax.rollout.engine import EngineError, SamplingParams, ServerLoad
from agentic_jax.rollout.fleet import Fleet
from agentic_jax.rollout.jax_engine import JaxEngine
from agentic_jax.rollout.scripted import ScriptedEngine
from agentic_jax.rollout.serve import Service, serve
from agentic_jax.rollout.served import open_model
from agentic_jax.rollout.sglang import SGLangServer
from tests.rollout.processes import ROOT, serve_engine, serve_sglang
from tests.rollout.small_models import publish_model, score, write_model

SIZES = {"rows": 2, "length": 256}
REPLY = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
PROMPT = [5, 6, 7, 8, 9]


@dataclass
class Subject:
    """An engine under test.

    Attributes:
        engine: what is tested.
        path: of the model that it runs; None if its log-probabilities mean nothing.
        update: (path of other weights, version) puts them in.
        seeded: whether a seed alone fixes what is sampled.
        servers: that are behind it, which are asked for their loads.
    """

    engine: Any
    path: pathlib.Path | None
    update: Callable[[pathlib.Path, int], Awaitable[None]]
    seeded: bool = True
    servers: Sequence[Any] = ()

    async def load(self):
        loads = [server.load() for server in self.servers or [self.engine]]
        if asyncio.iscoroutine(loads[0]):
            loads = await asyncio.gather(*loads)
        totals = zip(*(dataclasses.astuple(load) for load in loads), strict=True)
        return ServerLoad(*(sum(total) for total in totals))


@contextlib.asynccontextmanager
async def embedded(path, deterministic):
    config = hf_weights.read_config(path)
    engine = JaxEngine(
        hf_weights.load(path, config), config, deterministic=deterministic, **SIZES
    )

    async def update(path, version):
        await engine.update_weights(hf_weights.load(path, config), version)

    yield Subject(engine, path, update)
    await engine.close()


@contextlib.asynccontextmanager
async def scripted(path):
    engine = ScriptedEngine(lambda ids: REPLY)
    yield Subject(engine, None, engine.update_weights)


@contextlib.asynccontextmanager
async def served(path):
    flags = [f"--{name}={size}" for name, size in SIZES.items()]
    with serve_engine(path, *flags, "--weight_version=0", "--deterministic") as url:
        engine = SGLangServer(url, timeout_s=60.0)
        yield Subject(engine, path, engine.update_from_disk)
        await engine.close()


@contextlib.asynccontextmanager
async def fleet(path):
    async with contextlib.AsyncExitStack() as stack:
        servers = []
        for _ in range(2):
            engine, model, params = open_model(
                path, dtype="float32", deterministic=True, **SIZES
            )
            stack.push_async_callback(engine.close)
            service = Service(engine, model, params=params, weight_version="default")
            runner = await serve(service, host="127.0.0.1", port=0)
            stack.push_async_callback(runner.cleanup)
            host, port = runner.addresses[0][:2]
            servers.append(SGLangServer(f"http://{host}:{port}", timeout_s=60.0))
        engine = Fleet(
            servers,
            publish=lambda path, version: path,
            length=SIZES["length"],
            slice_tokens=16,
            check_s=0.1,
            params=path,
        )
        stack.push_async_callback(engine.close)
        yield Subject(engine, path, engine.update_weights, servers=servers)


@contextlib.asynccontextmanager
async def sglang(path):
    python = os.environ.get("SGLANG_PYTHON", ROOT / ".venv-sglang" / "bin" / "python")
    if not pathlib.Path(python).exists():
        pytest.skip("make test-sglang sets up SGLang's environment")
    flags = ("--max-total-tokens=4096", "--context-length=512", "--weight-version=0")
    with serve_sglang(python, path, *flags) as url:
        engine = SGLangServer(url, timeout_s=120.0)
        yield Subject(engine, path, engine.update_from_disk, seeded=False)
        await engine.close()


MAKERS = {
    "deterministic": lambda path: embedded(path, True),
    "fast": lambda path: embedded(path, False),
    "scripted": scripted,
    "served": served,
    "fleet": fleet,
    "sglang": sglang,
}
LOCAL = ("deterministic", "fast", "scripted")
MARKED = [
    pytest.param(name, marks=[pytest.mark.sglang] if name == "sglang" else [])
    for name in MAKERS
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("first") / "model")


@pytest.fixture(scope="module", params=MARKED)
def subject(request, run, path):
    making = MAKERS[request.param](path)
    yield run(making.__aenter__())
    run(making.__aexit__(None, None, None))


@pytest.fixture
def generate(run, subject):
    async def main(token_ids, session, options):
        params = SamplingParams(**{"max_tokens": 8, **options})
        done = await subject.engine.generate(token_ids, params, session=session)
        await subject.engine.release(session)
        return done

    def call(token_ids=PROMPT, session="s", **options):
        return run(main(token_ids, session, options))

    return call


def test_a_completion_is_int32_ids_and_one_float32_logprob_each(generate):
    done = generate()
    assert done.token_ids.dtype == np.int32 and done.logprobs.dtype == np.float32
    assert done.token_ids.shape == done.logprobs.shape == (8,)
    assert np.all(done.logprobs <= 0) and done.stop == "length"


@pytest.mark.parametrize("max_tokens", [1, 5])
def test_max_tokens_ends_with_length(generate, max_tokens):
    done = generate(max_tokens=max_tokens)
    assert len(done.token_ids) == max_tokens and done.stop == "length"


def test_the_same_request_gives_the_same_answer(generate, subject):
    options = {"seed": 7} if subject.seeded else {"temperature": 0.0}
    first, second = (generate(session=session, **options) for session in "ab")
    np.testing.assert_array_equal(first.token_ids, second.token_ids)
    np.testing.assert_allclose(first.logprobs, second.logprobs, atol=1e-5)


def test_prompts_are_lists_or_arrays(generate):
    as_list, as_array = (
        generate(ids, temperature=0.0) for ids in (PROMPT, np.array(PROMPT))
    )
    np.testing.assert_array_equal(as_list.token_ids, as_array.token_ids)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_are_those_of_the_score_step(generate, subject, temperature):
    if subject.path is None:
        pytest.skip("this engine has no model")
    prompt = [*PROMPT, 250, 100, 33]
    done = generate(prompt, max_tokens=24, temperature=temperature)
    ids = [*prompt, *done.token_ids]
    expected = score(subject.path, ids, temperature=temperature)[len(prompt) :]
    np.testing.assert_allclose(done.logprobs, expected, atol=1e-4)
    assert done.logprobs.min() < -0.5  # Not a model that is sure of everything.


def test_a_stop_id_ends_it_and_stays(generate, subject):
    free = generate(temperature=0.0)
    stop_id = int(free.token_ids[-1])
    if subject.path is None:
        return  # Its replies bring their own stop tokens.
    done = generate(temperature=0.0, max_tokens=20, stop_token_ids=(stop_id,))
    end = free.token_ids.tolist().index(stop_id) + 1
    np.testing.assert_array_equal(done.token_ids, free.token_ids[:end])
    assert done.stop == "stop"


@pytest.mark.parametrize(
    "token_ids, max_tokens, message", [([], 8, "empty"), (PROMPT, 0, "max_tokens is 0")]
)
def test_impossible_requests_are_value_errors(generate, token_ids, max_tokens, message):
    with pytest.raises(ValueError, match=message):
        generate(token_ids, max_tokens=max_tokens)


def test_what_does_not_fit_is_a_value_error(generate, subject):
    if subject.path is None:
        pytest.skip("this engine has no length")
    with pytest.raises(ValueError, match=r"600 tokens.*(256|512)"):
        generate([5] * 600)


def test_many_sessions_at_once_each_get_an_answer(run, subject):
    async def one(i):
        params = SamplingParams(max_tokens=6, seed=i)
        done = await subject.engine.generate([i, i + 1], params, session=str(i))
        await subject.engine.release(str(i))
        return len(done.token_ids)

    async def main():
        return await asyncio.gather(*(one(i) for i in range(7)))

    assert run(main()) == [6] * 7


def test_releasing_an_unknown_session_is_ignored(run, subject):
    run(subject.engine.release("never seen"))


LONG = SamplingParams(max_tokens=240)


async def started(subject, session):
    """A long request that runs, and the load that shows it.

    On a fast machine it may be over before it is seen: then another is asked.
    """

    def ask():
        request = subject.engine.generate(PROMPT, LONG, session=session)
        return asyncio.ensure_future(request)

    task = ask()
    async with asyncio.timeout(30):
        while not (load := await subject.load()).running or task.done():
            task = ask() if task.done() else task
            await asyncio.sleep(0.001)
    return task, load


async def idle(subject):
    async with asyncio.timeout(30):
        while (load := await subject.load()).running + load.waiting:
            await asyncio.sleep(0.01)
    return load


def test_a_release_ends_what_runs_with_what_it_has(run, subject):
    if subject.path is None:
        pytest.skip("this engine answers at once")

    async def main():
        task, load = await started(subject, "long")
        await subject.engine.release("long")
        return load, await task, await idle(subject)

    load, done, after = run(main())
    assert done.stop == "abort" and len(done.token_ids) == len(done.logprobs) < 240
    assert load.running == 1 and load.capacity_tokens >= 512
    assert (after.running, after.waiting) == (0, 0)


def test_cancelling_the_caller_ends_the_request(run, subject):
    if subject.path is None:
        pytest.skip("this engine answers at once")

    async def main():
        task, _ = await started(subject, "long")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await idle(subject)

    assert run(main()).running == 0


def test_new_weights_change_what_is_sampled_and_its_version(
    run, subject, generate, tmp_path
):
    before = generate(temperature=0.0)
    path = publish_model(tmp_path, seed=1, version=41)
    run(subject.update(path, 41))
    after = generate(temperature=0.0)
    assert (before.weight_version, after.weight_version) == (0, 41)
    if subject.path is not None:
        assert not np.array_equal(before.token_ids, after.token_ids)
        ids = [*PROMPT, *after.token_ids]
        expected = score(path, ids, temperature=1.0)[len(PROMPT) :]
        np.testing.assert_allclose(after.logprobs, expected, atol=1e-4)


@pytest.mark.parametrize("name", LOCAL)
def test_a_closed_engine_raises(run, path, name):
    async def main():
        async with MAKERS[name](path) as subject:
            await subject.engine.close()
            params = SamplingParams(max_tokens=8)
            with pytest.raises(EngineError, match="closed"):
                await subject.engine.generate(PROMPT, params, session="s")

    run(main())
