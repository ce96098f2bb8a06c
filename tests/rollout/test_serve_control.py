import asyncio
import contextlib
import dataclasses
import threading

import numpy as np
import pytest

from agentic_jax.rollout.serve import Service, serve
from agentic_jax.rollout.served import open_model
from tests.rollout.asking import (
    FREE,
    PROMPT,
    SIZES,
    ask,
    generate,
    held,
    loads,
    logprobs,
)
from tests.rollout.small_models import score, write_model


def test_aborted_requests_answer_with_what_they_have(run, served):
    url = served[2]

    async def act():
        async with held(url, "a", "ab", "c") as (a, ab, c):
            assert (await ask(url, "/abort_request", {"rid": "a"}))[0] == 200
            status, answer = await a
            assert status == 200 and answer["output_ids"] == []
            assert answer["meta_info"]["finish_reason"]["type"] == "abort"
            assert not ab.done() and not c.done()
            await ask(url, "/abort_request", {"abort_all": True})
            for task in (ab, c):
                status, answer = await task
                assert answer["meta_info"]["finish_reason"]["type"] == "abort"
            assert (await ask(url, "/abort_request", {"rid": "gone"}))[0] == 200
            status, answer = await ask(url, "/abort_request", {})
            assert status == 400 and "give a rid" in answer["error"]["message"]

    run(act())


def test_a_rid_that_runs_is_not_taken_twice(run, served):
    url = served[2]

    async def act():
        async with held(url, "a") as (first,):
            body = {"input_ids": PROMPT, "rid": "a"}
            status, answer = await ask(url, "/generate", body)
            assert status == 400 and "runs already" in answer["error"]["message"]
        return await first

    assert run(act())[0] == 200


def test_pausing_and_going_on(run, served, call):
    url = served[2]
    free = generate(call)["output_ids"]

    async def act():
        async with held(url, "a") as (task,):
            status, text = await ask(url, "/flush_cache", {})
            assert status == 400 and "1 requests" in text
            assert not task.done()
        status, answer = await task
        assert answer["output_ids"] == free
        await ask(url, "/pause_generation", {"mode": "abort"})
        status, answer = await ask(url, "/pause_generation", {"mode": "retract"})
        assert status == 400 and "retract" in answer["error"]["message"]
        await ask(url, "/continue_generation", {})

    run(act())


def test_pausing_by_abort_ends_what_runs(run, served):
    url = served[2]

    async def act():
        async with held(url, "a") as (task,):
            assert (await ask(url, "/pause_generation", {}))[0] == 200
            status, answer = await task
            assert answer["meta_info"]["finish_reason"]["type"] == "abort"

    run(act())


def test_a_client_that_goes_away_ends_its_request(run, served):
    url = served[2]

    async def act():
        async with held(url):
            body = {"input_ids": PROMPT, "sampling_params": FREE}
            task = asyncio.ensure_future(ask(url, "/generate", body))
            while not (await loads(url))["num_waiting_reqs"]:
                await asyncio.sleep(0.01)
            task.cancel()
            while (await loads(url))["num_waiting_reqs"]:
                await asyncio.sleep(0.01)

    run(act())


def test_loads_count_the_tokens_of_rows(run, served):
    assert run(loads(served[2])) | {"timestamp": 0} == {
        "dp_rank": 0,
        "timestamp": 0,
        "num_running_reqs": 0,
        "num_waiting_reqs": 0,
        "num_used_tokens": 0,
        "max_total_num_tokens": 128,
        "token_usage": 0.0,
        "max_running_requests": 2,
    }


def test_metrics_and_information(call, paths):
    generate(call)
    status, text = call("/metrics")
    assert status == 200 and "# TYPE sglang:num_running_reqs gauge" in text
    assert float(text.split("\nsglang:generation_tokens_total ")[1].split()[0]) >= 8
    status, info = call("/server_info")
    assert status == 200 and info["max_total_num_tokens"] == 128
    assert info["internal_states"][0]["finished_requests"] > 0
    status, info = call("/model_info")
    assert info["model_type"] == "qwen3" and info["weight_version"] == "default"
    assert info["model_path"] == str(paths[0]) and info["is_generation"]
    assert call("/health") == (200, "")


def test_weights_that_cannot_be_had_leave_the_old_ones(call, paths, tmp_path):
    before = generate(call)
    broken = write_model(tmp_path / "broken")
    file = broken / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    for path, message in (
        ("/nowhere", "no model directory /nowhere"),
        (broken, "damaged or cut short"),
        (paths[2], "its width is 64, not 32"),
    ):
        body = {"model_path": str(path), "weight_version": "9"}
        status, answer = call("/update_weights_from_disk", body)
        assert status == 400 and not answer["success"] and message in answer["message"]
    status, answer = call("/update_weights_from_disk", {})
    assert status == 400 and "model_path is missing" in answer["error"]["message"]
    after = generate(call)
    assert after["output_ids"] == before["output_ids"]
    assert after["meta_info"]["weight_version"] == "default"


def test_new_weights_change_output_label_and_path(run, call, served, paths):
    url, old = served[2], generate(call)
    body = {"model_path": str(paths[1]), "weight_version": "7"}
    status, answer = call("/update_weights_from_disk", body)
    assert status == 200 and answer["success"] and not answer["num_paused_requests"]
    new = generate(call)
    assert new["output_ids"] != old["output_ids"]
    assert new["meta_info"]["weight_version"] == "7"
    ids = [*PROMPT, *new["output_ids"]]
    expected = score(paths[1], ids, temperature=1.0)[5:]
    np.testing.assert_allclose(logprobs(new), expected, atol=1e-4)
    info = call("/model_info")[1]
    assert (info["model_path"], info["weight_version"]) == (str(paths[1]), "7")

    async def back():
        async with held(url, "a") as (task,):  # It waits for the old weights.
            body = {"model_path": str(paths[0]), "abort_all_requests": False}
            assert (await ask(url, "/update_weights_from_disk", body))[0] == 200
        return await task

    status, answer = run(back())
    assert answer["output_ids"] == old["output_ids"]
    assert answer["meta_info"]["weight_version"] == "7"  # No label was given.


@contextlib.asynccontextmanager
async def serving(path, **changes):
    """Engine and url of a server of its own, with other fields of Served."""
    engine, model, params = open_model(path, **SIZES)
    model = dataclasses.replace(model, **changes)
    service = Service(engine, model, params=params, weight_version="1")
    runner = await serve(service, host="127.0.0.1", port=0)
    host, port = runner.addresses[0][:2]
    try:
        yield engine, f"http://{host}:{port}"
    finally:
        await runner.cleanup()
        await engine.close()


def test_an_update_ends_whole_though_its_client_goes_away(run, served, paths):
    begun, go_on = threading.Event(), threading.Event()

    def load(path):
        begun.set()
        assert go_on.wait(60)
        return served[1].load(path)

    async def act():
        async with serving(paths[0], load=load) as (_, url):
            body = {"model_path": str(paths[1]), "weight_version": "2"}
            task = asyncio.ensure_future(ask(url, "/update_weights_from_disk", body))
            await asyncio.to_thread(begun.wait)
            task.cancel()
            for _ in range(3):  # By then the server knows.
                await ask(url, "/health")
            go_on.set()
            async with asyncio.timeout(60):
                while (await ask(url, "/model_info"))[1]["weight_version"] != "2":
                    await asyncio.sleep(0.01)
            body = {"input_ids": PROMPT, "sampling_params": FREE}
            return await ask(url, "/generate", body)

    status, answer = run(act())
    assert status == 200 and answer["meta_info"]["weight_version"] == "2"


def test_an_engine_that_ended_is_neither_healthy_nor_silent(run, paths):
    async def act():
        async with serving(paths[0]) as (engine, url):
            await engine.close()
            health = await ask(url, "/health")
            body = {"input_ids": PROMPT, "sampling_params": FREE}
            return health, await ask(url, "/generate", body)

    (status, text), (failed, answer) = run(act())
    assert status == 503 and "closed" in text
    assert failed == 500 and "closed" in answer["error"]["message"]


def test_a_length_beyond_the_model_is_refused(paths):
    with pytest.raises(ValueError, match="length 513 is beyond the 512 positions"):
        open_model(paths[0], **{**SIZES, "length": 513})
