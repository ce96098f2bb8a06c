"""The client of one server that speaks SGLang's HTTP API."""

import asyncio
import io
import json
import math
import os
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import aiohttp
import numpy as np
from absl import logging

from agentic_jax.rollout.engine import (
    Completion,
    EngineError,
    SamplingParams,
    ServerLoad,
)

_PROBE_SECONDS = 10.0  # For what a healthy server answers at once.
# SGLang closes idle connections after 5 s; one that is about to close is not reused.
_IDLE_SECONDS = 3.0
_ROUNDING = 1e-3  # How far above 0 a log-probability may be.
_OF_THE_REQUEST = (400, 413, 422)  # Statuses that another server would give too.


class ServerError(EngineError):
    """The server died, hung, failed or answered nonsense; another one may do better."""


class _NoAnswer(ServerError):
    """Nothing came back, so the request may still run."""


class SGLangServer:
    """One SGLang server, or launch.serve_engine, behind its HTTP routes.

    Nothing is retried here. A request is named by an id of its own, which is how it is
    aborted: cancelling the caller of generate aborts it on the server too.

    Args:
        url: for example "http://127.0.0.1:30000".
        timeout_s: seconds that a generation or an update of the weights may take;
            what is asked of an idle moment may take 10 s.
        http: connections to share; None opens some, and close() closes them.

    Raises:
        ValueError: timeout_s is not positive.
    """

    def __init__(
        self, url: str, *, timeout_s: float, http: aiohttp.ClientSession | None = None
    ):
        if not 0 < timeout_s < math.inf:
            raise ValueError(f"timeout_s is {timeout_s}; wanted a positive number")
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._http, self._owns_http = http, http is None
        self._running: dict[str, set[str]] = {}  # Session -> ids of its requests.
        self._aborts: set[asyncio.Task] = set()

    async def generate(
        self, token_ids: Sequence[int], params: SamplingParams, *, session: str
    ) -> Completion:
        """Samples a continuation of token_ids; see Engine.

        SGLang ends a request at the model's own end-of-sequence tokens too, unless
        there are no stop ids at all, and draws by the seed only if it was started with
        --enable-deterministic-inference. A request that is aborted, whoever asked for
        it, comes back with stop "abort" and the tokens that it has.

        Raises:
            ValueError: the prompt or max_tokens is empty, or the server says that the
                request is wrong, say too long; so would every other server.
            ServerError: no answer in time, or none that is whole: log-probabilities
                that are missing or not finite, a trimmed stop token or prompt, a
                weight version that is no number.
        """
        if len(token_ids) == 0:
            raise ValueError("the prompt is empty; sampling needs at least one token")
        if params.max_tokens < 1:
            raise ValueError(f"max_tokens is {params.max_tokens}; wanted at least 1")
        rid = f"{uuid.uuid4().hex}-{session}"  # An abort means every id that starts so.
        body = {
            "rid": rid,
            "input_ids": [int(token_id) for token_id in token_ids],
            "sampling_params": _sampling_fields(params),
            "return_logprob": True,
        }
        if params.top_logprobs:
            body["top_logprobs_num"] = params.top_logprobs
        self._running.setdefault(session, set()).add(rid)
        try:
            answer = await self._post("/generate", body, seconds=self._timeout_s)
        except (_NoAnswer, asyncio.CancelledError):
            self._abort_later(rid)
            raise
        finally:
            self._running[session].discard(rid)
            if not self._running[session]:
                del self._running[session]
        return self._completion(answer, params, prompt_tokens=len(body["input_ids"]))

    async def abort(self, session: str) -> None:
        """Ends the session's requests; whoever waits gets stop "abort".

        Raises:
            ServerError: the server did not take the order.
        """
        for rid in list(self._running.get(session, ())):
            await self._post("/abort_request", {"rid": rid}, seconds=_PROBE_SECONDS)

    async def release(self, session: str) -> None:
        """Aborts what the session has running; the cache is freed by need, not here."""
        try:
            await self.abort(session)
        except ServerError as error:
            logging.warning("session %s was not released: %s", session, error)

    async def load(self) -> ServerLoad:
        """What all ranks report; behind the truth by some steps while they decode.

        Raises:
            ServerError: no answer, or not of this form.
        """
        answer = await self._get("/v1/loads")
        try:
            ranks = answer["loads"]
            return ServerLoad(
                running=sum(int(rank["num_running_reqs"]) for rank in ranks),
                waiting=sum(int(rank["num_waiting_reqs"]) for rank in ranks),
                used_tokens=sum(int(rank["num_used_tokens"]) for rank in ranks),
                capacity_tokens=sum(
                    int(rank["max_total_num_tokens"]) for rank in ranks
                ),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise self._nonsense(answer, f"/v1/loads: {error!r}") from error

    async def weight_version(self) -> int | None:
        """The version of its weights; None if nobody has set one since it started.

        Raises:
            ServerError: no answer, or not of this form.
        """
        answer = await self._get("/model_info")
        if not isinstance(answer, dict) or "weight_version" not in answer:
            raise self._nonsense(answer, "/model_info has no weight_version")
        return _version(answer["weight_version"])

    async def healthy(self) -> bool:
        """Whether it says that it can serve; no answer is no."""
        try:
            await self._request("GET", "/health", None, seconds=_PROBE_SECONDS)
        except (ServerError, ValueError):
            return False
        return True

    async def update_from_disk(self, path: str | os.PathLike, version: int) -> None:
        """Has the server load a Hugging Face directory, once nothing runs on it.

        Raises:
            ServerError: it did not; the message is the server's. The old weights stay
                unless the server is gone.
        """
        body = {
            "model_path": os.fspath(path),
            "weight_version": str(version),
            "flush_cache": True,
        }
        route = "/update_weights_from_disk"
        try:
            answer = await self._post(route, body, seconds=self._timeout_s)
        except ValueError as error:
            raise ServerError(f"{error} (weights in {path})") from error
        if not isinstance(answer, dict) or answer.get("success") is not True:
            raise self._nonsense(answer, f"the update to {path} did not succeed")

    async def pause(self, mode: Literal["abort", "in_place"]) -> None:
        """Stops generation until resume(): running requests are aborted or stand still.

        What stands still while weights change is labelled with the last version whole:
        abort where versions must be true. SGLang's third mode, "retract", crashes some
        of its versions when new weights follow, so it is not offered.

        Raises:
            ValueError: another mode.
            ServerError: the server did not take the order.
        """
        if mode not in ("abort", "in_place"):
            raise ValueError(f"mode is {mode!r}; wanted 'abort' or 'in_place'")
        await self._post("/pause_generation", {"mode": mode}, seconds=self._timeout_s)

    async def resume(self) -> None:
        """Continues generation after pause().

        Raises:
            ServerError: the server did not take the order.
        """
        await self._post("/continue_generation", {}, seconds=_PROBE_SECONDS)

    async def close(self) -> None:
        """Closes the connections that this client opened; the server goes on."""
        await asyncio.gather(*self._aborts)
        if self._owns_http and self._http is not None:
            await self._http.close()
            self._http = None

    async def _post(
        self, route: str, body: Mapping[str, Any], *, seconds: float
    ) -> Any:
        return await self._request("POST", route, body, seconds=seconds)

    async def _get(self, route: str) -> Any:
        return await self._request("GET", route, None, seconds=_PROBE_SECONDS)

    async def _request(
        self,
        method: str,
        route: str,
        body: Mapping[str, Any] | None,
        *,
        seconds: float,
    ) -> Any:
        """The JSON or the text of a 200; otherwise raises as generate does."""
        if self._http is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_SECONDS)
            self._http = aiohttp.ClientSession(connector=connector)
        # A file is sent without stopping the event loop, however long the prompt.
        data = None if body is None else io.BytesIO(json.dumps(body).encode())
        try:
            async with self._http.request(
                method,
                self.url + route,
                data=data,
                headers={"Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=10.0),
            ) as answer:
                text = await answer.text()
                status = answer.status
        except TimeoutError as error:
            raise _NoAnswer(f"{self.url}{route}: no answer in {seconds:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _NoAnswer(
                f"{self.url}{route}: {type(error).__name__}: {error}"
            ) from error
        if status in _OF_THE_REQUEST:
            raise ValueError(f"{self.url}{route} refuses this: {_message(text)}")
        if status != 200:
            raise ServerError(f"{self.url}{route}: {status} {_message(text)}")
        return _parsed(text)

    def _abort_later(self, rid: str) -> None:
        """Has the server drop a request whose answer nobody waits for any more."""

        async def abort() -> None:
            try:
                await self._post("/abort_request", {"rid": rid}, seconds=_PROBE_SECONDS)
            except (ServerError, ValueError) as error:
                logging.info("request %s may still run: %s", rid, error)

        task = asyncio.get_running_loop().create_task(abort())
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)

    def _completion(
        self, answer: Any, params: SamplingParams, *, prompt_tokens: int
    ) -> Completion:
        """The Completion in an answer of /generate; ServerError if it is not whole."""
        try:
            meta = answer["meta_info"]
            reason = meta["finish_reason"]
            stop = reason["type"]
            ids = [_token_id(token_id) for token_id in answer["output_ids"]]
            entries = meta.get("output_token_logprobs") or []
            logprobs = np.array([_number(entry[0]) for entry in entries], np.float32)
            scored = [entry[1] for entry in entries]
            tops = _top_logprobs(meta, params.top_logprobs)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise self._nonsense(answer, f"/generate: {error!r}") from error
        version = _version(meta.get("weight_version"))
        if stop not in ("stop", "length", "abort"):
            wrong = f"finish_reason {stop!r}"
        elif ids != scored:
            wrong = f"{len(ids)} ids, and log-probabilities of {len(scored)} or others"
        elif tops is not None and len(tops) != len(ids):
            wrong = f"{len(ids)} ids, and the likeliest tokens of {len(tops)}"
        elif not (np.isfinite(logprobs) & (logprobs < _ROUNDING)).all():
            wrong = "log-probabilities that are not finite or above 0"
        elif not (0 < len(ids) or stop == "abort") or len(ids) > params.max_tokens:
            wrong = f"{len(ids)} tokens of at most {params.max_tokens}"
        elif isinstance(reason.get("matched"), int) and ids[-1] != reason["matched"]:
            wrong = f"the stop token {reason['matched']} trimmed off"
        elif meta.get("prompt_tokens", prompt_tokens) != prompt_tokens:
            wrong = f"{meta['prompt_tokens']} of {prompt_tokens} prompt tokens read"
        elif version is None:
            wrong = f"weight_version {meta.get('weight_version')!r}; update its weights"
        else:
            ids = np.array(ids, np.int32)
            cached = int(meta.get("cached_tokens") or 0)
            return Completion(ids, logprobs, stop, version, cached, tops)
        raise ServerError(f"{self.url}/generate answered with {wrong}")

    def _nonsense(self, answer: Any, what: str) -> ServerError:
        return ServerError(f"{self.url}: {what}: {str(answer):.200}")


def _top_logprobs(meta: Mapping[str, Any], count: int) -> np.ndarray | None:
    """[n, count] nats of the likeliest tokens at each sampled one; None for none."""
    if not count:
        return None
    places = meta.get("output_top_logprobs") or []
    rows = [[_number(entry[0]) for entry in place[:count]] for place in places]
    return np.array(rows, np.float32).reshape(len(rows), count)


def _sampling_fields(params: SamplingParams) -> dict[str, Any]:
    """SamplingParams in SGLang's words."""
    return {
        "max_new_tokens": params.max_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k or -1,
        "stop": list(params.stop_strings),
        "stop_token_ids": list(params.stop_token_ids),
        "ignore_eos": not params.stop_token_ids,  # It switches off all stop ids.
        "no_stop_trim": True,
        "skip_special_tokens": False,
        "sampling_seed": params.seed,
    }


def _version(label: Any) -> int | None:
    """The number in a weight version, or None where it is only a name."""
    try:
        return int(label)
    except (TypeError, ValueError):
        return None


def _token_id(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"token id {value!r}")
    return value


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)  # JSON has no other NaN.


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # Plain words of a route that has no form; else found to be wrong.


def _message(text: str) -> str:
    """What an error body says, whichever of SGLang's forms it has."""
    body = _parsed(text)
    if isinstance(body, dict):
        inner = body.get("error", body)
        body = inner.get("message", inner) if isinstance(inner, dict) else inner
    return f"{body!s:.500}"
