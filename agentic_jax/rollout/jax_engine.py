"""The embedded engine: sampling with a cache, in the process that trains."""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np

from agentic_jax.models.config import ModelConfig
from agentic_jax.rollout.engine import (
    Completion,
    EngineError,
    SamplingParams,
    ServerLoad,
)
from agentic_jax.rollout.requests import Request, check_request
from agentic_jax.rollout.worker import Worker, fail


class JaxEngine:
    """An Engine that decodes on this process's device, many sequences at a time.

    A session owns a row of the cache from its first generate until its release, so what
    it computed survives its tool calls; more sessions than rows wait in order of
    arrival. All but the last known token of a request are prefilled, in chunks; the
    last one is always consumed by the decode loop, which samples what follows. Prompts
    that another row holds are copied from it, or waited for while it computes them.
    One thread owns the device; the event loop is never blocked.

    Deterministic: a request's tokens and log-probabilities are a function, bit for bit,
    of its prompt, seed and options, the weights and its session's earlier requests.
    Every step decodes all rows over the whole cache, every prefill has one shape, and
    only such keys of other rows are reused as recomputation would give. (An update of
    the weights in mid-session is part of its history: everything is recomputed.)
    Otherwise fewer rows and positions are computed where fewer are in use, and every
    equal prefix is reused: faster, and equal up to rounding (of 4,096 tokens of a 4.2M
    model none differed, and log-probabilities by 6e-6 at most).

    Args:
        params: of the Transformer, used without a copy: once they are donated, update
            the weights before the next request.
        config: of the model; its dtype is that of the cache too.
        decode: token ids to text; needed for stop strings only.
        rows: sequences held at a time.
        length: most tokens of a sequence, prompt and response.
        deterministic: see above.
        chunk: most tokens per row that are sampled between two looks at new requests,
            cancellations and stop strings.
        prefill_chunk: tokens per row of one prefill.
        prefill_rows: rows of one prefill.

    Raises:
        ValueError: a size below 1.
    """

    def __init__(
        self,
        params: Any,
        config: ModelConfig,
        *,
        decode: Callable[[Sequence[int]], str] | None = None,
        rows: int,
        length: int,
        deterministic: bool,
        chunk: int = 16,
        prefill_chunk: int = 32,
        prefill_rows: int = 8,
    ):
        sizes = (rows, length, chunk, prefill_chunk, prefill_rows)
        if min(sizes) < 1:
            raise ValueError(
                "rows, length, chunk, prefill_chunk and prefill_rows are "
                f"{', '.join(map(str, sizes))}; each must be at least 1"
            )
        self._limits = {"vocab_size": config.vocab_size, "length": length}
        self._has_decode = decode is not None
        self._worker = Worker(
            params,
            config,
            decode=decode,
            rows=rows,
            length=length,
            deterministic=deterministic,
            chunk=chunk,
            prefill_chunk=prefill_chunk,
            prefill_rows=prefill_rows,
        )
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._controls: deque[tuple[Callable[[], None], Future]] = deque()
        self._failure: BaseException | None = None
        self._paused = self._closing = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    async def generate(
        self, token_ids: Sequence[int], params: SamplingParams, *, session: str
    ) -> Completion:
        """Samples a continuation of token_ids; see Engine.

        Cancelling the caller frees the session's row. Releasing the session ends the
        request with stop "abort" and what it has sampled.

        Raises:
            ValueError: the prompt is empty or does not fit, or an option is out of
                range; the message has the numbers.
            EngineError: the engine is closed or broken, or its logits are NaN.
        """
        token_ids = np.asarray(token_ids, np.int32)
        check_request(token_ids, params, **self._limits)
        if params.stop_strings and not self._has_decode:
            raise ValueError("stop_strings need JaxEngine(..., decode=...)")
        request = Request(token_ids, params, session)
        self._send(partial(self._worker.submit, request))
        return await asyncio.wrap_future(request.future)

    async def release(self, session: str) -> None:
        """Frees the session's row and ends its request if one runs; see Engine."""
        self._inbox.put(partial(self._worker.release, session))

    async def update_weights(self, params: Any, version: int) -> None:
        """Swaps the weights without a copy, as soon as no request runs.

        Requests that arrive meanwhile wait for the new weights. Everything cached is
        forgotten, so sessions that span an update are recomputed. A paused engine takes
        them at once: what runs is recomputed too, goes on with them, and carries their
        version for all of its tokens.

        Raises:
            ValueError: the parameters differ from the first ones in shape or dtype.
            EngineError: the engine is closed or broken.
        """
        self._worker.programs.check_params(params)
        await self._control(partial(self._worker.swap, params, version))

    async def forget_cache(self) -> None:
        """Empties the cache, as soon as no request runs."""
        await self._control(self._worker.forget)

    async def pause(self) -> None:
        """Stops sampling until resume(); running requests keep their rows, and wait."""
        self._send(partial(setattr, self, "_paused", True))

    async def resume(self) -> None:
        """Goes on after pause()."""
        self._send(partial(setattr, self, "_paused", False))

    def load(self) -> ServerLoad:
        """What is held now.

        Raises:
            EngineError: the engine has ended.
        """
        self._check_alive()
        return self._worker.load()

    async def warm_up(self) -> None:
        """Compiles every program that the engine can need, as soon as none runs."""
        await self._control(self._worker.compile)

    async def close(self) -> None:
        """Ends the engine; requests that wait or run raise EngineError."""
        self._inbox.put(partial(setattr, self, "_closing", True))
        await asyncio.to_thread(self._thread.join)

    def stats(self) -> dict[str, float]:
        """Counts since the start.

        Returns:
            sampled_tokens; prefilled_tokens, computed before sampling; reused_tokens,
            which the cache held instead; decode_steps; occupied_rows_mean, rows that
            sampled per decode step; finished_requests; compilations.
        """
        counts = self._worker.counts.copy()
        return {
            "sampled_tokens": counts["sampled"],
            "prefilled_tokens": counts["prefilled"],
            "reused_tokens": counts["context"] - counts["prefilled"],
            "decode_steps": counts["steps"],
            "occupied_rows_mean": counts["sampled"] / max(counts["steps"], 1),
            "finished_requests": counts["finished"],
            "compilations": self._worker.programs.num_compiled,
        }

    def _send(self, message: Callable[[], None]) -> None:
        """Hands a message to the thread; raises EngineError if that has ended."""
        self._inbox.put(message)
        self._check_alive()  # The failure is set before the inbox is last emptied.

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise EngineError(f"the engine has ended: {self._failure}")

    async def _control(self, action: Callable[[], None]) -> None:
        """Has the thread do something when no request runs, and waits for it."""
        future: Future = Future()
        self._send(partial(self._controls.append, (action, future)))
        await asyncio.wrap_future(future)

    # From here on everything runs on the engine's own thread.

    def _serve(self) -> None:
        reason: BaseException = EngineError("it was closed")
        try:
            while True:
                self._receive()
                if self._closing:
                    break
                self._worker.drop_cancelled()
                self._run_controls()
                if not self._paused:
                    self._worker.step(admit=not self._controls)
        except Exception as error:  # Whatever it is: callers must not wait for ever.
            reason = error
        self._failure = reason
        while not self._inbox.empty():
            self._inbox.get()()
        futures = self._worker.take_futures() + [f for _, f in self._controls]
        fail(futures, EngineError(f"the engine has ended: {reason}"), reason)

    def _receive(self) -> None:
        """Takes all messages; waits for one if there is nothing else to do."""
        idle = self._paused or not self._worker.num_running
        if idle and not self._controls:
            self._inbox.get()()
        while not self._inbox.empty():
            self._inbox.get()()

    def _run_controls(self) -> None:
        while self._controls and (self._paused or not self._worker.num_running):
            action, future = self._controls.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    action()
                except Exception as error:
                    future.set_exception(EngineError(f"the engine has ended: {error}"))
                    raise
                future.set_result(None)
