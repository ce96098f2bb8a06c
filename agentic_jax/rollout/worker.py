"""What the embedded engine's thread does: rows, prefill and decoding, step by step."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Literal

import numpy as np

from agentic_jax.models.config import ModelConfig
from agentic_jax.models.decoding import Draws
from agentic_jax.models.programs import Programs
from agentic_jax.rollout.engine import Completion, EngineError, ServerLoad
from agentic_jax.rollout.requests import Request, draw_fields
from agentic_jax.rollout.slots import Slots
from agentic_jax.rollout.stopping import tokens_to_stop

Stop = Literal["stop", "length", "abort"]


class Worker:
    """Serves requests on one device. Only one thread may call it, save for `load`.

    Args: as of JaxEngine.

    Attributes:
        programs: the weights, the cache and what runs on them.
        counts: events since the start, by name.
    """

    def __init__(
        self,
        params: Any,
        config: ModelConfig,
        *,
        decode: Callable[[Sequence[int]], str] | None,
        rows: int,
        length: int,
        deterministic: bool,
        chunk: int,
        prefill_chunk: int,
        prefill_rows: int,
    ):
        self._decode_text = decode
        self._chunk, self._length = chunk, length
        lines, line = min(prefill_rows, rows), min(prefill_chunk, length)
        self._lines = lines
        if deterministic:
            self._row_sizes, self._windows = (rows,), (length,)
            self._line_shapes = ((lines, line),)
        else:  # A lone prefill of many tokens takes those of all lines in one.
            self._row_sizes = tuple(sorted({1, *_parts(rows, by=2, least=8)}))
            self._windows = _parts(length, by=4, least=256)
            self._line_shapes = (
                *((count, line) for count in sorted({1, max(lines // 2, 1), lines})),
                (1, min(lines * line, length)),
            )
        self._slots = Slots(rows=rows, length=length, exact=deterministic)
        self.programs = Programs(
            params, config, rows=rows, length=length, num_steps=chunk
        )
        self._version = 0
        self._waiting: deque[Request] = deque()
        self._running: dict[int, Request] = {}  # By row.
        self.counts: Counter[str] = Counter()

    @property
    def num_running(self) -> int:
        """Requests that hold a row."""
        return len(self._running)

    def load(self) -> ServerLoad:
        """What is held now; safe to ask from any thread."""
        running = list(self._running.values())
        return ServerLoad(
            running=len(running),
            waiting=len(self._waiting),
            used_tokens=sum(request.num_tokens for request in running),
            capacity_tokens=self.programs.rows * self._length,
        )

    def submit(self, request: Request) -> None:
        """Queues a request."""
        self._waiting.append(request)

    def take_futures(self) -> list[Future]:
        """The futures of all requests, for whoever ends this worker."""
        return [r.future for r in (*self._waiting, *self._running.values())]

    def release(self, session: str) -> None:
        """Frees a session's row and ends its requests with what they have sampled."""
        for index, request in list(self._running.items()):
            if request.session == session:
                self._finish(index, "abort")
        for request in [r for r in self._waiting if r.session == session]:
            self._waiting.remove(request)
            self._answer(request, "abort")
        self._slots.release(session)

    def drop_cancelled(self) -> None:
        """Releases the sessions whose callers went away."""
        for request in [*self._running.values(), *self._waiting]:
            if request.future.cancelled():
                self.release(request.session)

    def swap(self, params: Any, version: int) -> None:
        """Takes new weights; what runs is computed again before it goes on."""
        self.programs.set_params(params)
        self._version = version
        self.forget()

    def forget(self) -> None:
        """Empties the cache, but for the plan to fill the rows of what runs again."""
        self._slots.forget()
        for request in self._running.values():
            self._slots.place(request.session, request.stored)

    def step(self, *, admit: bool) -> None:
        """Admits waiting requests, if it may, and samples one chunk for what runs."""
        if admit:
            self._admit()
        self._fill()
        self._sample()

    def _admit(self) -> None:
        """Gives rows to waiting requests, in order."""
        busy = {request.session for request in self._running.values()}
        for request in list(self._waiting):
            if request.session in busy:
                continue  # One request of a session at a time.
            index = self._slots.place(request.session, request.token_ids[:-1])
            if index is not None:
                self._waiting.remove(request)
                self._running[index] = request
                busy.add(request.session)
                request.cached = len(request.token_ids) - 1  # Prefill subtracts.
                self.counts["context"] += request.cached

    def _fill(self) -> None:
        """Copies and prefills until the row of every running request is complete."""
        while missing := self._slots.missing():
            if copies := self._slots.take_copies(self._lines):
                self._copy(copies)
            else:
                shape = self._line_shape(missing)
                lines = self._slots.take_lines(shape[0], chunk=shape[1])
                need = 1 + max(positions[-1] for _, positions in lines)
                self._prefill(lines, shape, _least(self._windows, need))

    def _line_shape(self, missing: list[int]) -> tuple[int, int]:
        """The smallest shape of a prefill for rows that miss so many tokens each.

        It has a line for each row, and the tokens of one row in that line, or as much
        of it as there is room for.
        """
        lines = min(len(missing), self._lines)
        tokens = missing[0] if lines == 1 else 1
        shapes = [s for s in self._line_shapes if s[0] >= lines and s[1] >= tokens]
        return min(shapes or self._line_shapes[-1:], key=lambda s: s[0] * s[1])

    def _copy(self, copies: list[tuple[int, int]]) -> None:
        pairs = np.full((2, self._lines), self.programs.rows, np.int32)
        pairs[:, : len(copies)] = np.array(copies, np.int32).T
        self.programs.copy_rows(*pairs)

    def _prefill(
        self,
        lines: list[tuple[int, np.ndarray]],
        shape: tuple[int, int],
        window: int,
    ) -> None:
        tokens = np.zeros(shape, np.int32)
        at = np.full(shape, self._length, np.int32)
        rows = np.full(shape[0], self.programs.rows, np.int32)
        for line, (index, positions) in enumerate(lines):
            places = positions % shape[1]
            tokens[line, places] = self._slots.tokens(index, positions)
            at[line, places] = positions
            rows[line] = index
            self._running[index].cached -= len(positions)
            self.counts["prefilled"] += len(positions)
        self.programs.prefill(tokens, at, rows, window=window)

    def _sample(self) -> None:
        """One chunk of decoding for all running requests, and what follows from it."""
        if not self._running:
            return
        rows, requests = self._layout()
        need = max(
            r.num_tokens + min(r.num_left, self._chunk) for r in self._running.values()
        )
        tokens, logprobs, tops, counts = self.programs.decode(
            Draws(**draw_fields(requests)),
            rows=rows,
            window=_least(self._windows, need),
        )
        self.counts["steps"] += int(counts.max())
        for column, request in enumerate(requests):
            if request is not None:
                new = slice(counts[column])
                if num_top := request.params.top_logprobs:
                    request.tops += list(tops[new, column, :num_top])
                self._extend(rows[column], tokens[new, column], logprobs[new, column])

    def _layout(self) -> tuple[np.ndarray, list[Request | None]]:
        """[R] cache rows to decode, and the request of each, None where idle."""
        size = _least(self._row_sizes, len(self._running))
        if size == self.programs.rows:
            rows = range(size)
        else:
            rows = sorted(self._running)
            rows += [self.programs.rows] * (size - len(rows))
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
                del request.sampled[keep:], request.logprobs[keep:], request.tops[keep:]
                stop = "stop"
        self.counts["sampled"] += len(request.sampled) - checked
        if stop:
            self._finish(index, stop)

    def _finish(self, index: int, stop: Stop) -> None:
        """Ends a running request; its session keeps the row and what it holds."""
        request = self._running.pop(index)
        self._slots.record(index, request.stored)
        self.counts["finished"] += 1
        self._answer(request, stop)

    def _answer(self, request: Request, stop: Stop) -> None:
        if request.future.set_running_or_notify_cancel():
            ids = np.array(request.sampled, np.int32)
            logprobs = np.array(request.logprobs, np.float32)
            cached = max(request.cached, 0)  # New weights may have emptied the cache.
            wanted = request.params.top_logprobs
            tops = np.array(request.tops, np.float32).reshape(len(ids), wanted)
            request.future.set_result(
                Completion(
                    ids, logprobs, stop, self._version, cached, tops if wanted else None
                )
            )

    def _fail_on_nan(self) -> None:
        """Fails all running requests; NaN keys would poison whoever comes next."""
        futures = [request.future for request in self._running.values()]
        self._running.clear()
        self._slots.forget()
        self.programs.reset_cache()
        reason = f"the logits of weight version {self._version} are NaN"
        fail(futures, EngineError(f"{reason}; look at the last update"))

    def compile(self) -> None:
        """Runs every program once on nothing."""
        self._copy([])
        for window in self._windows:
            for shape in self._line_shapes:
                self._prefill([], shape, window)
            for size in self._row_sizes:
                unused = np.full(size, self.programs.rows, np.int32)
                self.programs.decode(
                    Draws(**draw_fields([None] * size)), rows=unused, window=window
                )


def _parts(size: int, *, by: int, least: int) -> tuple[int, ...]:
    """The size, one `by`-th of it (rounded up) and so on down to `least`, rising."""
    sizes = [size]
    while sizes[-1] > least:
        sizes.append(max(-(-sizes[-1] // by), least))
    return tuple(reversed(sizes))


def _least(sizes: Sequence[int], need: int) -> int:
    """The smallest of the rising sizes that is at least `need`."""
    return next(size for size in sizes if size >= need)


def fail(
    futures: Sequence[Future], error: EngineError, cause: BaseException | None = None
) -> None:
    """Raises an error in whoever waits for these futures."""
    error.__cause__ = cause
    for future in futures:
        if future.set_running_or_notify_cancel():
            future.set_exception(error)
