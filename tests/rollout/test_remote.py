import asyncio
import types

import numpy as np
import pytest
from aiohttp import web

from agentic_jax.chat.tokenizer import train_tokenizer
from agentic_jax.rollout.engine import EngineError, SamplingParams
from agentic_jax.rollout.remote import Router, open_fleet
from agentic_jax.rollout.sglang import SGLangServer
from tests.rollout.fake_servers import FakeServer, expected, make_fleet, play
from tests.rollout.small_models import CONFIG, make_params, with_eos

PROMPT = [5, 6, 7, 8, 9]


class HttpServer:
    """SGLang's routes in front of a FakeServer; `spoil` changes its answers."""

    def __init__(self):
        self.fake = FakeServer(version=1)
        self.spoil = []
        app = web.Application()
        app.router.add_post("/generate", self.generate)
        app.router.add_post("/update_weights_from_disk", self.update)
        app.router.add_post("/abort_request", self.fine)
        app.router.add_get("/health", self.fine)
        app.router.add_get("/v1/loads", self.loads)
        app.router.add_get("/model_info", self.model_info)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1)

    async def start(self):
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        return "http://{}:{}".format(*self.runner.addresses[0][:2])

    async def generate(self, request):
        body = await request.json()
        sampling = body["sampling_params"]
        params = SamplingParams(
            max_tokens=sampling["max_new_tokens"], seed=sampling["sampling_seed"]
        )
        how = self.spoil.pop(0) if self.spoil else "well"
        if how == "hang":
            await asyncio.Event().wait()
        if how == "drop":
            request.transport.close()
        if how == "500":
            raise web.HTTPInternalServerError(text="out of memory")
        if how == "garbage":
            return web.Response(text='{"text": "')
        done = await self.fake.generate(body["input_ids"], params, session=body["rid"])
        ids = done.token_ids.tolist()
        logprobs = [
            [float(x), i, None] for x, i in zip(done.logprobs, ids, strict=True)
        ]
        if how == "nan":
            logprobs[1][0] = float("nan")
        if how == "short":
            logprobs.pop()
        meta = {
            "id": body["rid"],
            "finish_reason": {"type": "length", "length": len(ids)},
            "weight_version": str(done.weight_version - (how == "old")),
            "prompt_tokens": len(body["input_ids"]),
            "output_token_logprobs": logprobs,
        }
        return web.json_response({"output_ids": ids, "meta_info": meta})

    async def update(self, request):
        body = await request.json()
        await self.fake.update_from_disk(
            body["model_path"], int(body["weight_version"])
        )
        return web.json_response({"success": True, "message": "ok"})

    async def loads(self, request):
        load = {
            "num_running_reqs": 0,
            "num_waiting_reqs": 0,
            "num_used_tokens": 0,
            "max_total_num_tokens": 1_000,
        }
        return web.json_response({"loads": [load]})

    async def model_info(self, request):
        return web.json_response({"weight_version": str(self.fake.version)})

    async def fine(self, request):
        return web.json_response({})


@pytest.mark.parametrize(
    "how", ["drop", "500", "garbage", "nan", "short", "old", "hang"]
)
def test_over_http_a_spoilt_answer_costs_no_turn(how):
    servers = [HttpServer(), HttpServer()]
    servers[0].spoil = ["well", how, how]

    async def main():
        urls = [await server.start() for server in servers]
        fleet = make_fleet([SGLangServer(url, timeout_s=0.3) for url in urls])
        await fleet.update_weights("w", 1)
        while fleet.stats()["servers_in_service"] < 2:
            await asyncio.sleep(0.001)
        params = [SamplingParams(max_tokens=20, seed=i) for i in range(6)]
        dones = await asyncio.gather(
            *(fleet.generate(PROMPT, p, session=str(p.seed)) for p in params)
        )
        stats = fleet.stats()
        await fleet.close()
        for server in servers:
            await server.runner.cleanup()
        return dones, stats

    dones, stats = asyncio.run(main())
    for i, done in enumerate(dones):
        assert done.token_ids.tolist() == expected(i, 5, 20)
        assert done.weight_version == 1
    assert stats["faults"] >= 1


class FakeRouter(FakeServer):
    """Sends each request to the next worker that is alive."""

    def __init__(self, workers):
        super().__init__("router")
        self.workers, self.turn = workers, 0

    async def generate(self, token_ids, params, *, session):
        self._check()
        alive = [worker for worker in self.workers if worker.alive]
        self.turn += 1
        worker = alive[self.turn % len(alive)]
        return await worker.generate(token_ids, params, session=session)

    async def update_from_disk(self, path, version):
        raise AssertionError("the router knows no such route")


def generate(fleet, **options):
    params = SamplingParams(**{"max_tokens": 20, "seed": 3, **options})
    return fleet.generate(PROMPT, params, session="s")


def test_behind_a_router_weights_go_to_the_workers():
    workers = [FakeServer(name) for name in "ab"]

    async def main(fleet):
        first = await generate(fleet)
        await fleet.update_weights("w", 2)
        return first, await generate(fleet)

    dones = play(main, [Router(FakeRouter(workers), workers)])
    assert [done.weight_version for done in dones] == [1, 2]
    assert all(done.token_ids.tolist() == expected(3, 5, 20) for done in dones)
    assert all(worker.version == 2 and worker.requests for worker in workers)


def test_a_dead_worker_does_not_hold_up_the_others_and_comes_back_with_the_weights():
    workers = [FakeServer(name) for name in "ab"]

    async def main(fleet):
        workers[0].alive = False
        await fleet.update_weights("w", 2)
        assert (await generate(fleet)).weight_version == 2
        workers[0].restart(version=0)  # The router trusts it again at once.
        return await generate(fleet)

    assert play(main, [Router(FakeRouter(workers), workers)]).weight_version == 2
    assert workers[0].version == 2


@pytest.mark.parametrize("versions, whole", [((2, 2), 2), ((2, 1), None)])
def test_a_router_has_the_version_that_all_its_workers_have(versions, whole):
    workers = [FakeServer(str(v), version=v) for v in versions]
    router = Router(FakeRouter(workers), workers)
    assert asyncio.run(router.weight_version()) == whole


def test_a_router_without_workers_ends_the_run():
    workers = [FakeServer("a")]
    workers[0].alive = False
    with pytest.raises(EngineError, match="no server has been in service"):
        play(generate, [Router(FakeRouter(workers), workers)], wait_s=0.03)


def test_what_a_config_names_opens_a_fleet_and_publishes(tmp_path):
    tokenizer = train_tokenizer((), vocab_size=CONFIG.vocab_size)
    model = types.SimpleNamespace(config=with_eos(tokenizer), tokenizer=tokenizer)
    chat = types.SimpleNamespace(decode=tokenizer.decode)
    server = HttpServer()

    async def main():
        url = await server.start()
        fleet = open_fleet(
            make_params(0),
            model,
            chat,
            urls=[url],
            directory=str(tmp_path),
            dtype="bfloat16",
            length=200,
            timeout_s=5.0,
        )
        done = await generate(fleet)
        await fleet.close()
        await server.runner.cleanup()
        return done

    done = asyncio.run(main())
    assert done.token_ids.tolist() == expected(3, 5, 20)
    np.testing.assert_array_equal(done.logprobs, -done.token_ids)
    assert server.fake.paths == [str(tmp_path / "00000000")]
    assert (tmp_path / "00000000" / "model.safetensors").exists()
