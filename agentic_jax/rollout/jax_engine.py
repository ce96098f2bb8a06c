"""The embedded engine: sampling with a cache, in the process that trains."""

import asyncio
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Literal

import numpy as np

from agentic_jax.models.config import ModelConfig
from agentic_jax.models.decoding import Draws
from agentic_jax.models.programs import Programs
from agentic_jax.rollout.engine import Completion, EngineError, SamplingParams
from agentic_jax.rollout.requests import Request, check_request, draw_fields
from agentic_jax.rollout.slots import Slots
from agentic_jax.rollout.stopping import tokens_to_stop

Stop = Literal["stop", "length", "abort"]


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
        self._decode_text = decode
        self._chunk, self._length = chunk, length
        lines, line = min(prefill_rows, rows), min(prefill_chunk, length)
        self._lines = lines
        if deterministic:
            self._row_sizes, self._windows = (rows,), (length,)
            self._line_shapes = ((lines, line),)
        else:  # A lone prefill takes the tokens of all lines in one.
            self._row_sizes = _quarters(rows, least=1)
            self._windows = _quarters(length, least=256)
            self._line_shapes = ((lines, line), (1, min(lines * line, length)))
        self._slots = Slots(rows=rows, length=length, exact=deterministic)
        self._programs = Programs(
            params, config, rows=rows, length=length, num_steps=chunk
        )
        self._version = 0
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._waiting: deque[Request] = deque()
        self._running: dict[int, Request] = {}  # By row.
        self._controls: deque[tuple[Callable[[], None], Future]] = deque()
        self._counts: Counter[str] = Counter()
        self._failure: BaseException | None = None
        self._closing = False
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
        if params.stop_strings and self._decode_text is None:
            raise ValueError("stop_strings need JaxEngine(..., decode=...)")
        request = Request(token_ids, params, session)
        self._send(partial(self._waiting.append, request))
        return await asyncio.wrap_future(request.future)

    async def release(self, session: str) -> None:
        """Frees the session's row and ends its request if one runs; see Engine."""
        self._inbox.put(partial(self._release, session))

    async def update_weights(self, params: Any, version: int) -> None:
        """Swaps the weights without a copy, as soon as no request runs.

        Requests that arrive meanwhile wait for the new weights. Everything cached is
        forgotten, so sessions that span an update are recomputed.

        Raises:
            ValueError: the parameters differ from the first ones in shape or dtype.
            EngineError: the engine is closed or broken.
        """
        self._programs.check_params(params)
        await self._control(partial(self._swap, params, version))

    async def warm_up(self) -> None:
        """Compiles every program that the engine can need, as soon as none runs."""
        await self._control(self._compile)

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
        counts = self._counts.copy()
        return {
            "sampled_tokens": counts["sampled"],
            "prefilled_tokens": counts["prefilled"],
            "reused_tokens": counts["context"] - counts["prefilled"],
            "decode_steps": counts["steps"],
            "occupied_rows_mean": counts["sampled"] / max(counts["steps"], 1),
            "finished_requests": counts["finished"],
            "compilations": self._programs.num_compiled,
        }

    def _send(self, message: Callable[[], None]) -> None:
        """Hands a message to the thread; raises EngineError if that has ended."""
        self._inbox.put(message)
        if self._failure is not None:  # It is set before the inbox is last emptied.
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
                self._drop_cancelled()
                self._run_controls()
                self._admit()
                self._fill()
                self._sample()
        except Exception as error:  # Whatever it is: callers must not wait for ever.
            reason = error
        self._failure = reason
        while not self._inbox.empty():
            self._inbox.get()()
        requests = [*self._waiting, *self._running.values()]
        futures = [r.future for r in requests] + [f for _, f in self._controls]
        _fail(futures, EngineError(f"the engine has ended: {reason}"), reason)

    def _receive(self) -> None:
        """Takes all messages; waits for one if there is nothing else to do."""
        if not self._running and not self._controls:
            self._inbox.get()()
        while not self._inbox.empty():
            self._inbox.get()()

    def _release(self, session: str) -> None:
        for index, request in list(self._running.items()):
            if request.session == session:
                self._finish(index, "abort")
        for request in [r for r in self._waiting if r.session == session]:
            self._waiting.remove(request)
            self._answer(request, "abort")
        self._slots.release(session)

    def _drop_cancelled(self) -> None:
        for request in [*self._running.values(), *self._waiting]:
            if request.future.cancelled():
                self._release(request.session)

    def _run_controls(self) -> None:
        while self._controls and not self._running:
            action, future = self._controls.popleft()
            if future.set_running_or_notify_cancel():
                action()
                future.set_result(None)

    def _swap(self, params: Any, version: int) -> None:
        self._programs.set_params(params)
        self._version = version
        self._slots.forget()

    def _admit(self) -> None:
        """Gives rows to waiting requests, in order, unless a control waits."""
        if self._controls:
            return
        busy = {request.session for request in self._running.values()}
        for request in list(self._waiting):
            if request.session in busy:
                continue  # One request of a session at a time.
            index = self._slots.place(request.session, request.token_ids[:-1])
            if index is not None:
                self._waiting.remove(request)
                self._running[index] = request
                busy.add(request.session)
                self._counts["context"] += len(request.token_ids) - 1

    def _fill(self) -> None:
        """Copies and prefills until the row of every running request is complete."""
        while unfilled := self._slots.num_unfilled:
            if copies := self._slots.take_copies(self._lines):
                self._copy(copies)
            else:
                shape = self._line_shapes[-1 if unfilled == 1 else 0]
                lines = self._slots.take_lines(shape[0], chunk=shape[1])
                need = 1 + max(positions[-1] for _, positions in lines)
                self._prefill(lines, shape, _least(self._windows, need))

    def _copy(self, copies: list[tuple[int, int]]) -> None:
        pairs = np.full((2, self._lines), self._programs.rows, np.int32)
        pairs[:, : len(copies)] = np.array(copies, np.int32).T
        self._programs.copy_rows(*pairs)

    def _prefill(
        self,
        lines: list[tuple[int, np.ndarray]],
        shape: tuple[int, int],
        window: int,
    ) -> None:
        tokens = np.zeros(shape, np.int32)
        at = np.full(shape, self._length, np.int32)
        rows = np.full(shape[0], self._programs.rows, np.int32)
        for line, (index, positions) in enumerate(lines):
            places = positions % shape[1]
            tokens[line, places] = self._slots.tokens(index, positions)
            at[line, places] = positions
            rows[line] = index
            self._counts["prefilled"] += len(positions)
        self._programs.prefill(tokens, at, rows, window=window)

    def _sample(self) -> None:
        """One chunk of decoding for all running requests, and what follows from it."""
        if not self._running:
            return
        rows, requests = self._layout()
        need = max(
            r.num_tokens + min(r.num_left, self._chunk) for r in self._running.values()
        )
        tokens, logprobs, counts = self._programs.decode(
            Draws(**draw_fields(requests)),
            rows=rows,
            window=_least(self._windows, need),
        )
        self._counts["steps"] += int(counts.max())
        for column, request in enumerate(requests):
            if request is not None:
                new = slice(counts[column])
                self._extend(rows[column], tokens[new, column], logprobs[new, column])

    def _layout(self) -> tuple[np.ndarray, list[Request | None]]:
        """[R] cache rows to decode, and the request of each, None where idle."""
        size = _least(self._row_sizes, len(self._running))
        if size == self._programs.rows:
            rows = range(size)
        else:
            rows = sorted(self._running)
            rows += [self._programs.rows] * (size - len(rows))
        return np.array(rows, np.int32), [self._running.get(row) for row in rows]

    def _extend(self, index: int, tokens: np.ndarray, logprobs: np.ndarray) -> None:
        """Adds newly sampled tokens to a request and ends it where it must end."""
        request = self._running.get(index)
        if request is None:
            return  # Failed a moment ago, with the others.
        if np.isnan(logprobs).any():
            self._fail_on_nan()
            return
        params, checked = request.params, len(request.sampled)
        request.sampled += tokens.tolist()
        request.logprobs += logprobs.tolist()
        stop = None
        if len(request.sampled) == params.max_tokens:
            stop = "length"
        if request.sampled[-1] in params.stop_token_ids:
            stop = "stop"
        if params.stop_strings:
            keep = tokens_to_stop(
                request.sampled, params.stop_strings, self._decode_text, checked=checked
            )
            if keep is not None:
                del request.sampled[keep:], request.logprobs[keep:]
                stop = "stop"
        self._counts["sampled"] += len(request.sampled) - checked
        if stop:
            self._finish(index, stop)

    def _finish(self, index: int, stop: Stop) -> None:
        """Ends a running request; its session keeps the row and what it holds."""
        request = self._running.pop(index)
        self._slots.record(index, request.stored)
        self._counts["finished"] += 1
        self._answer(request, stop)

    def _answer(self, request: Request, stop: Stop) -> None:
        if request.future.set_running_or_notify_cancel():
            ids = np.array(request.sampled, np.int32)
            logprobs = np.array(request.logprobs, np.float32)
            request.future.set_result(Completion(ids, logprobs, stop, self._version))

    def _fail_on_nan(self) -> None:
        """Fails all running requests; NaN keys would poison whoever comes next."""
        futures = [request.future for request in self._running.values()]
        self._running.clear()
        self._slots.forget()
        self._programs.reset_cache()
        reason = f"the logits of weight version {self._version} are NaN"
        _fail(futures, EngineError(f"{reason}; look at the last update"))

    def _compile(self) -> None:
        """Runs every program once on nothing."""
        self._copy([])
        for window in self._windows:
            for shape in self._line_shapes:
                self._prefill([], shape, window)
            for size in self._row_sizes:
                unused = np.full(size, self._programs.rows, np.int32)
                self._programs.decode(
                    Draws(**draw_fields([None] * size)), rows=unused, window=window
                )


def _quarters(size: int, *, least: int) -> tuple[int, ...]:
    """The size, a quarter of it (rounded up) and so on down to `least`, rising."""
    sizes = [size]
    while sizes[-1] > least:
        sizes.append(max(-(-sizes[-1] // 4), least))
    return tuple(reversed(sizes))


def _least(sizes: Sequence[int], need: int) -> int:
    """The smallest of the rising sizes that is at least `need`."""
    return next(size for size in sizes if size >= need)


def _fail(
    futures: Sequence[Future], error: EngineError, cause: BaseException | None = None
) -> None:
    """Raises an error in whoever waits for these futures."""
    error.__cause__ = cause
    for future in futures:
        if future.set_running_or_notify_cancel():
            future.set_exception(error)
