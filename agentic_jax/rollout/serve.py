"""The embedded engine as an HTTP server that speaks SGLang's routes."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from absl import logging
from aiohttp import web

from agentic_jax.rollout.engine import Completion, EngineError
from agentic_jax.rollout.jax_engine import JaxEngine
from agentic_jax.rollout.replies import Scores, chat_answer, generate_answer
from agentic_jax.rollout.served import Served
from agentic_jax.rollout.wire import (
    MAX_TOP_LOGPROBS,
    Ask,
    read_chat,
    read_fields,
    read_generate,
)

_MAX_BODY_BYTES = 64 << 20
_BODY_SECONDS = 60.0  # For a client to send what it announced.
_CLOSING_SECONDS = 5.0
Handler = Callable[[Any], Awaitable[web.Response]]


class Service:
    """SGLang's routes over an engine.

    A request's id is its session in the engine. It ends with the request, so what a
    later turn can reuse is what rows still hold that nobody needed since.

    Three things differ from SGLang. An abort means the one id, not all that start with
    it. An update always empties the cache, and what is paused in place is recomputed
    with the new weights, so old keys never meet them. What is not offered (streams,
    grammars, penalties, several samples of one prompt) is refused with status 400.

    Args:
        engine: samples, so far with version 0.
        model: what is served.
        params: of version 0.
        weight_version: its label.
    """

    def __init__(
        self, engine: JaxEngine, model: Served, *, params: Any, weight_version: str
    ):
        self._engine, self._model = engine, model
        self._path = model.path
        self._labels = [weight_version]  # By the engine's version.
        self._params = {0: params}
        self._running: dict[str, asyncio.Future[Completion]] = {}
        self._counts: Counter[str] = Counter()
        self._updating, self._scoring = asyncio.Lock(), asyncio.Lock()
        self._updates: set[asyncio.Future] = set()
        self._paused = False

    def application(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        posts = {
            "/generate": self._generate,
            "/v1/chat/completions": self._chat,
            "/abort_request": self._abort,
            "/update_weights_from_disk": self._update,
            "/pause_generation": self._pause,
            "/continue_generation": self._continue,
            "/flush_cache": self._flush,
        }
        app.add_routes([web.post(path, _route(h)) for path, h in posts.items()])
        gets = {
            "/health": self._health,
            "/model_info": self._model_info,
            "/server_info": self._server_info,
            "/v1/loads": self._loads,
            "/metrics": self._metrics,
            "/flush_cache": self._flush,
        }
        app.add_routes([web.get(path, _route(h)) for path, h in gets.items()])
        return app

    async def _generate(self, body: Any) -> web.Response:
        start = time.monotonic()
        asks, batch = read_generate(body, self._model.texts)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._answer(ask, start)) for ask in asks]
        except* (ValueError, EngineError) as errors:
            raise errors.exceptions[0] from None
        answers = [task.result() for task in tasks]
        return web.json_response(answers if batch else answers[0])

    async def _answer(self, ask: Ask, start: float) -> dict[str, Any]:
        known = dict(self._params) if ask.needs_scores else {}
        done = await self._sample(ask)
        scores = None, None
        if ask.needs_scores:
            scores = await self._score(ask, done, known | self._params)
        return generate_answer(
            ask,
            done,
            decode=self._model.texts.decode,
            weight_version=self._labels[done.weight_version],
            seconds=time.monotonic() - start,
            prompt_scores=scores[0],
            sampled_scores=scores[1],
        )

    async def _sample(self, ask: Ask) -> Completion:
        if ask.rid in self._running:
            raise ValueError(f"a request with rid {ask.rid!r:.100} runs already")
        self._counts["requests"] += 1
        self._running[ask.rid] = asyncio.ensure_future(
            self._engine.generate(ask.token_ids, ask.params, session=ask.rid)
        )
        try:
            done = await self._running[ask.rid]
        finally:
            del self._running[ask.rid]
            await self._engine.release(ask.rid)
        self._counts["aborted"] += done.stop == "abort"
        self._counts["prompt_tokens"] += len(ask.token_ids)
        self._counts["cached_tokens"] += done.cached_tokens
        self._counts["generation_tokens"] += len(done.token_ids)
        return done

    async def _score(
        self, ask: Ask, done: Completion, params_of: Mapping[int, Any]
    ) -> tuple[Scores, Scores]:
        """Scores of the prompt and of what was sampled, under the weights of then."""
        params = params_of.get(done.weight_version)
        if params is None:  # They came and went while this request waited.
            raise EngineError("the weights that sampled this are gone; ask again")
        size, sampled = len(ask.token_ids), done.token_ids.tolist()
        divisor = ask.params.temperature or 1.0
        divisors = [1.0] * size + [divisor] * len(sampled)
        ids = [*ask.token_ids, *sampled]
        async with self._scoring:  # One row of activations at a time.
            top = MAX_TOP_LOGPROBS if ask.top_logprobs else 0  # Two programs, not 21.
            found = await asyncio.to_thread(
                self._model.score, params, ids, divisors, top=top
            )
        return Scores(*(x[:size] for x in found)), Scores(*(x[size:] for x in found))

    async def _chat(self, body: Any) -> web.Response:
        ask = read_chat(body, self._model.texts)
        done = await self._sample(ask)
        answer = chat_answer(
            ask,
            done,
            decode=self._model.texts.decode,
            weight_version=self._labels[done.weight_version],
            model=str(body.get("model") or self._path),
            created=int(time.time()),
        )
        return web.json_response(answer)

    async def _abort(self, body: Any) -> web.Response:
        fields = read_fields(body, {"rid": (str, ""), "abort_all": (bool, False)})
        if fields["abort_all"]:
            await self._abort_all()
        elif fields["rid"]:
            await self._engine.release(fields["rid"])
        else:
            raise ValueError("give a rid, or abort_all: true")
        return web.Response()

    async def _abort_all(self) -> None:
        for rid in list(self._running):
            await self._engine.release(rid)

    async def _update(self, body: Any) -> web.Response:
        fields = read_fields(
            body,
            {
                "model_path": (str, None),
                "weight_version": (str, None),
                "abort_all_requests": (bool, False),
                "flush_cache": (bool, True),  # It always is: see the message.
                "load_format": (str, "auto"),
                "torch_empty_cache": (bool, False),
                "token_step": (int, 0),
            },
        )
        if not fields["model_path"]:
            raise ValueError("model_path is missing: give a Hugging Face directory")
        if fields["load_format"] not in ("auto", "safetensors"):
            raise ValueError(f"load_format is {fields['load_format']!r}; wanted 'auto'")
        update = asyncio.ensure_future(self._try_load(fields))
        self._updates.add(update)
        update.add_done_callback(self._updates.discard)
        answer = await asyncio.shield(update)  # It ends whole if the client goes away.
        return web.json_response(answer, status=200 if answer["success"] else 400)

    async def _try_load(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        async with self._updating:
            paused = self._engine.load().running if self._paused else 0
            try:
                await self._load(fields)
            except (ValueError, OSError) as error:
                logging.warning("weights stay as they are: %s", error)
                ok, message = False, str(error)
            else:
                message = f"weights of {self._path} are in use and the cache is empty"
                logging.info("%s; version %s", message, self._labels[-1])
                ok = True
        return {"success": ok, "message": message, "num_paused_requests": paused}

    async def _load(self, fields: Mapping[str, Any]) -> None:
        """Reads and swaps weights; nothing has changed if it raises."""
        params = await asyncio.to_thread(self._model.load, fields["model_path"])
        if fields["abort_all_requests"]:
            await self._abort_all()
        version = len(self._labels)
        label = fields["weight_version"]
        self._labels.append(self._labels[-1] if label is None else label)
        self._params[version] = params  # Before the first completion that needs them.
        try:
            await self._engine.update_weights(params, version)
        except BaseException:
            del self._labels[version], self._params[version]
            raise
        self._path = fields["model_path"]
        for old in [v for v in self._params if v < version]:
            del self._params[old]

    async def _pause(self, body: Any) -> web.Response:
        mode = read_fields(body, {"mode": (str, "abort")})["mode"]
        if mode not in ("abort", "in_place"):
            raise ValueError(f"mode is {mode!r}; 'abort' and 'in_place' are offered")
        await self._engine.pause()
        self._paused = True
        if mode == "abort":
            running = list(self._running.values())
            await self._abort_all()
            await asyncio.gather(*running, return_exceptions=True)
        return web.json_response({"message": "paused", "status": "ok"})

    async def _continue(self, body: Any) -> web.Response:
        read_fields(body, {"torch_empty_cache": (bool, False)})
        await self._engine.resume()
        self._paused = False
        return web.json_response({"message": "continued", "status": "ok"})

    async def _flush(self, _: Any) -> web.Response:
        if self._running:
            text = f"{len(self._running)} requests run or wait; nothing was flushed\n"
            return web.Response(text=text, status=400)
        await self._engine.forget_cache()
        return web.Response(text="the cache is empty\n")

    async def _health(self, _: Any) -> web.Response:
        try:
            self._engine.load()
        except EngineError as error:
            return web.Response(text=str(error), status=503)
        return web.Response()

    async def _model_info(self, _: Any) -> web.Response:
        return web.json_response(
            {
                "model_path": self._path,
                "tokenizer_path": self._model.path,
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": self._labels[-1],
                "has_image_understanding": False,
                "has_audio_understanding": False,
                "model_type": self._model.info["model_type"],
                "architectures": self._model.info["architectures"],
            }
        )

    async def _server_info(self, _: Any) -> web.Response:
        state = {**self._engine.stats(), "paused": self._paused}
        return web.json_response(
            {
                **self._model.info,
                "model_path": self._path,
                "weight_version": self._labels[-1],
                "internal_states": [state],
            }
        )

    async def _loads(self, _: Any) -> web.Response:
        load = self._engine.load()
        rank = {
            "dp_rank": 0,
            "timestamp": time.time(),
            "num_running_reqs": load.running,
            "num_waiting_reqs": self._num_waiting(load.running),
            "num_used_tokens": load.used_tokens,
            "max_total_num_tokens": load.capacity_tokens,
            "token_usage": load.used_tokens / load.capacity_tokens,
            "max_running_requests": self._model.info["max_running_requests"],
        }
        return web.json_response(
            {
                "timestamp": datetime.now(UTC).isoformat(),
                "version": self._model.info["version"],
                "loads": [rank],
            }
        )

    def _num_waiting(self, running: int) -> int:
        return max(len(self._running) - running, 0)  # Some may be gone but not freed.

    async def _metrics(self, _: Any) -> web.Response:
        load = self._engine.load()
        gauges = {
            "num_running_reqs": load.running,
            "num_queue_reqs": self._num_waiting(load.running),
            "num_used_tokens": load.used_tokens,
            "max_total_num_tokens": load.capacity_tokens,
            "token_usage": load.used_tokens / load.capacity_tokens,
        }
        counters = {
            "num_requests_total": self._counts["requests"],
            "num_aborted_requests_total": self._counts["aborted"],
            "prompt_tokens_total": self._counts["prompt_tokens"],
            "cached_tokens_total": self._counts["cached_tokens"],
            "generation_tokens_total": self._counts["generation_tokens"],
        }
        lines = []
        for kind, values in (("gauge", gauges), ("counter", counters)):
            for name, value in values.items():
                lines.append(f"# TYPE sglang:{name} {kind}")
                lines.append(f"sglang:{name} {value}")
        return web.Response(text="\n".join(lines) + "\n")


def _route(handler: Handler) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Adds the reading of a body to a handler, and how refusals are written."""

    async def handle(request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                raw = await request.read()
            return await handler(json.loads(raw) if raw else {})
        except (ValueError, RecursionError) as error:
            return _refusal(400, error)
        except EngineError as error:
            logging.warning("%s: %s", request.path, error)
            return _refusal(500, error)
        except TimeoutError:
            return _refusal(408, f"no whole body in {_BODY_SECONDS:g} s")
        except web.HTTPRequestEntityTooLarge as error:
            return _refusal(413, error)

    return handle


def _refusal(status: int, what: Exception | str) -> web.Response:
    return web.json_response({"error": {"message": str(what)}}, status=status)


async def serve(service: Service, *, host: str, port: int) -> web.AppRunner:
    """Starts answering; `await runner.cleanup()` stops it.

    A client that goes away ends its request.
    """
    runner = web.AppRunner(
        service.application(),
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=_CLOSING_SECONDS,
    )
    await runner.setup()
    await web.TCPSite(runner, host, port, backlog=1024).start()
    return runner
