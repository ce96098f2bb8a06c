import asyncio
import dataclasses
import json

import numpy as np
import pytest
from aiohttp import web

from agentic_jax.rollout.engine import EngineError, SamplingParams
from agentic_jax.rollout.sglang import ServerError, ServerLoad, SGLangServer

PARAMS = SamplingParams(max_tokens=4, seed=5, stop_token_ids=(9,))


def answer(ids=(3, 1, 9), **meta):
    """What /generate answers when all is well."""
    return {
        "text": "",
        "output_ids": list(ids),
        "meta_info": {
            "id": "r",
            "finish_reason": {"type": "stop", "matched": 9},
            "weight_version": "7",
            "prompt_tokens": 2,
            "output_token_logprobs": [[-0.5, token_id, None] for token_id in ids],
            **meta,
        },
    }


def run(handle, act, *, timeout_s=5.0):
    """What act(server) returns, and the requests; handle(route, body) answers them."""
    seen = []

    async def serve(request):
        body = await request.json() if request.can_read_body else None
        seen.append((request.path, body))
        reply = handle(request.path, body)
        if asyncio.iscoroutine(reply):
            reply = await reply
        if isinstance(reply, web.Response):
            return reply
        return web.json_response(reply)

    async def main():
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", serve)
        runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        server = SGLangServer(f"http://{host}:{port}/", timeout_s=timeout_s)
        try:
            return await act(server)
        finally:
            await server.close()
            await runner.cleanup()

    return asyncio.run(main()), seen


def generate(server, params=PARAMS):
    return server.generate(np.array([4, 2]), params, session="s")


def test_a_request_is_in_sglangs_words_and_its_answer_in_ours():
    done, seen = run(lambda route, body: answer(), generate)
    np.testing.assert_array_equal(done.token_ids, [3, 1, 9])
    np.testing.assert_array_equal(done.logprobs, np.float32([-0.5] * 3))
    assert done.token_ids.dtype == np.int32 and done.logprobs.dtype == np.float32
    assert (done.stop, done.weight_version) == ("stop", 7)
    ((route, body),) = seen
    assert route == "/generate" and body.pop("rid").endswith("-s")
    assert body == {
        "input_ids": [4, 2],
        "return_logprob": True,
        "sampling_params": {
            "max_new_tokens": 4,
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": -1,
            "stop": [],
            "stop_token_ids": [9],
            "ignore_eos": False,
            "no_stop_trim": True,
            "skip_special_tokens": False,
            "sampling_seed": 5,
        },
    }


def test_ids_of_requests_do_not_start_with_one_another():
    async def act(server):
        await generate(server)
        await generate(server)

    _, seen = run(lambda route, body: answer(), act)
    first, second = (body["rid"] for _, body in seen)
    assert not first.startswith(second) and not second.startswith(first)


def test_without_stop_ids_nothing_stops_it():
    params = SamplingParams(max_tokens=3)
    reply = answer(finish_reason={"type": "length", "length": 3})
    done, seen = run(lambda route, body: reply, lambda s: generate(s, params))
    assert seen[0][1]["sampling_params"]["ignore_eos"] and done.stop == "length"


def test_what_was_aborted_while_it_waited_has_no_tokens():
    reply = {
        "text": "",
        "output_ids": [],
        "meta_info": {
            "id": "r",
            "finish_reason": {"type": "abort", "message": "Abort in waiting queue"},
            "weight_version": "7",
            "completion_tokens": 0,
        },
    }
    done, _ = run(lambda route, body: reply, generate)
    assert done.stop == "abort" and done.token_ids.shape == done.logprobs.shape == (0,)


LENGTH = {"type": "length", "length": 5}
NOT_WHOLE = {
    "no form": "hello",
    "null": None,
    "a list": [answer()],
    "no ids": {"meta_info": answer()["meta_info"]},
    "no reason": answer(finish_reason=None),
    "another reason": answer(finish_reason={"type": "bored"}),
    "text for ids": answer(ids="abc"),
    "negative ids": answer(ids=(-1, 9)),
    "no log-probabilities": answer(output_token_logprobs=None),
    "too few of them": answer(output_token_logprobs=[[-0.5, 3, None]]),
    "of other ids": answer(output_token_logprobs=[[-0.5, 9, None]] * 3),
    "null for one": answer(output_token_logprobs=[[None, t, None] for t in (3, 1, 9)]),
    "infinite": answer(output_token_logprobs=[[-1e999, t, None] for t in (3, 1, 9)]),
    "above 0": answer(output_token_logprobs=[[0.5, t, None] for t in (3, 1, 9)]),
    "too many tokens": answer(ids=(1,) * 5, finish_reason=LENGTH),
    "no tokens": answer(ids=(), finish_reason=LENGTH),
    "a trimmed stop token": answer(ids=(3, 1)),
    "a shortened prompt": answer(prompt_tokens=1),
    "an unnamed version": answer(weight_version="default"),
    "no version": answer(weight_version=None),
}


@pytest.mark.parametrize("reply", NOT_WHOLE.values(), ids=NOT_WHOLE)
def test_an_answer_that_is_not_whole_is_the_servers_fault(reply):
    with pytest.raises(ServerError, match=r"127\.0\.0\.1"):
        run(lambda route, body: web.json_response(reply), generate)


def test_nan_as_python_writes_it_is_not_finite():
    reply = answer(output_token_logprobs=[[float("nan"), t, None] for t in (3, 1, 9)])
    with pytest.raises(ServerError, match="not finite"):
        run(lambda route, body: web.Response(text=json.dumps(reply)), generate)


@pytest.mark.parametrize("status", [404, 429, 500, 503])
def test_failures_of_the_server_are_told_from_faults_of_the_request(status):
    reply = web.json_response({"detail": "out of memory"}, status=status)
    with pytest.raises(ServerError, match=f"{status}.*out of memory"):
        run(lambda route, body: reply, generate)


def test_a_request_that_is_wrong_everywhere_is_a_value_error():
    reply = web.json_response({"error": {"message": "too long: 9 > 8"}}, status=400)
    with pytest.raises(ValueError, match="too long: 9 > 8") as caught:
        run(lambda route, body: reply, generate)
    assert not isinstance(caught.value, EngineError)


def test_a_server_that_is_not_there_or_hangs_is_a_server_error():
    async def nobody():
        server = SGLangServer("http://127.0.0.1:9", timeout_s=5.0)
        try:
            with pytest.raises(ServerError, match="127.0.0.1:9/generate"):
                await generate(server)
            assert not await server.healthy()
            await server.release("s")
        finally:
            await server.close()

    asyncio.run(nobody())

    async def hang(route, body):
        if route == "/generate":
            await asyncio.Event().wait()
        return {}

    async def act(server):
        with pytest.raises(ServerError, match="no answer in 0.2 s"):
            await generate(server)

    _, seen = run(lambda *args: hang(*args), act, timeout_s=0.2)
    (_, body), (route, abort) = seen  # It may come back to life: it must not go on.
    assert route == "/abort_request" and abort == {"rid": body["rid"]}


class Held:
    """Answers /generate only when its request is aborted, with one token."""

    def __init__(self):
        self.started, self.aborted = asyncio.Event(), asyncio.Event()

    async def __call__(self, route, body):
        if route == "/generate":
            self.started.set()
            await self.aborted.wait()
            return answer(ids=(3,), finish_reason={"type": "abort", "message": "."})
        self.aborted.set()
        return web.Response()


@pytest.mark.parametrize("how", ["abort", "release"])
def test_a_session_is_aborted_by_the_id_of_its_request(how):
    held = Held()

    async def act(server):
        running = asyncio.ensure_future(generate(server))
        await held.started.wait()
        await getattr(server, how)("another session")
        await getattr(server, how)("s")
        return await running

    done, seen = run(held, act)
    assert done.stop == "abort" and done.token_ids.tolist() == [3]
    assert seen[1:] == [("/abort_request", {"rid": seen[0][1]["rid"]})]


def test_cancelling_the_caller_aborts_on_the_server():
    held = Held()

    async def act(server):
        running = asyncio.ensure_future(generate(server))
        await held.started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await held.aborted.wait()

    _, seen = run(held, act)
    assert seen[1:] == [("/abort_request", {"rid": seen[0][1]["rid"]})]


def test_loads_of_all_ranks_are_added():
    rank = {
        "num_running_reqs": 2,
        "num_waiting_reqs": 1,
        "num_used_tokens": 30,
        "max_total_num_tokens": 100,
    }
    load, _ = run(
        lambda route, body: {"version": "0.5", "loads": [rank, rank]},
        lambda server: server.load(),
    )
    assert load == ServerLoad(4, 2, 60, 200)
    with pytest.raises(ServerError, match="num_running_reqs"):
        run(lambda route, body: {"loads": [{}]}, lambda server: server.load())


@pytest.mark.parametrize("label, version", [("12", 12), ("default", None)])
def test_the_version_of_the_weights(label, version):
    found, _ = run(
        lambda route, body: {"weight_version": label},
        lambda server: server.weight_version(),
    )
    assert found == version


def test_an_update_says_path_and_label_and_must_succeed(tmp_path):
    def update(server):
        return server.update_from_disk(tmp_path, 3)

    _, seen = run(lambda route, body: {"success": True, "message": ""}, update)
    body = {"model_path": str(tmp_path), "weight_version": "3", "flush_cache": True}
    assert seen == [("/update_weights_from_disk", body)]
    refused = {"success": False, "message": "no such file"}
    for status in (200, 400, 500):
        with pytest.raises(ServerError, match="no such file"):
            run(lambda *_: web.json_response(refused, status=status), update)  # noqa: B023


def test_pause_and_resume():
    async def act(server):
        await server.pause("in_place")
        await server.resume()
        with pytest.raises(ValueError, match="'retract'; wanted 'abort'"):
            await server.pause("retract")
        return await server.healthy()

    healthy, seen = run(lambda route, body: web.Response(), act)
    assert healthy
    assert seen == [
        ("/pause_generation", {"mode": "in_place"}),
        ("/continue_generation", {}),
        ("/health", None),
    ]


def test_the_likeliest_tokens_are_asked_for_and_read():
    params = dataclasses.replace(PARAMS, top_logprobs=2)
    place = [[-0.25, 3, None], [-1.5, 1, None]]
    reply = answer(output_top_logprobs=[place] * 3)
    done, seen = run(lambda route, body: reply, lambda s: generate(s, params))
    assert seen[0][1]["top_logprobs_num"] == 2
    np.testing.assert_array_equal(done.top_logprobs, [[-0.25, -1.5]] * 3)
    for bad in (answer(), answer(output_top_logprobs=[place] * 2)):
        with pytest.raises(ServerError, match="generate"):
            run(lambda route, body, bad=bad: bad, lambda s: generate(s, params))
