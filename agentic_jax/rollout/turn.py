"""One generate call on its way through a fleet, sampled in slices."""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from agentic_jax.rollout.engine import Completion, SamplingParams
from agentic_jax.rollout.stopping import tokens_to_stop


@dataclasses.dataclass(eq=False)
class FleetTurn:
    """What was asked for, and what has been sampled so far.

    Attributes:
        token_ids: [n] int32 prompt.
        params: how to sample.
        session: whose it is.
        version: weights that sampled what it has; None before the first answer.
        sampled: token ids so far.
        logprobs: of each of them, nats.
        tops: [k] nats of the likeliest tokens at each of them, where asked for.
        cached_tokens: of the prompt, that a server held.
        attempts: requests that failed.
        room: resolves to the index of a server, or to None when the turn shall end.
        moving: it samples, or nothing keeps it from sampling.
        released: its session has been.
        stop: why it ended; None before.
    """

    token_ids: np.ndarray
    params: SamplingParams
    session: str
    version: int | None = None
    sampled: list[int] = dataclasses.field(default_factory=list)
    logprobs: list[float] = dataclasses.field(default_factory=list)
    tops: list[np.ndarray] = dataclasses.field(default_factory=list)
    cached_tokens: int = 0
    attempts: int = 0
    room: asyncio.Future | None = None
    moving: bool = False
    released: bool = False
    stop: Literal["stop", "length", "abort"] | None = None

    @property
    def num_tokens(self) -> int:
        """Prompt and sampled tokens."""
        return len(self.token_ids) + len(self.sampled)

    def next_request(self, slice_tokens: int) -> tuple[np.ndarray, SamplingParams]:
        """The ids to continue and how, for at most slice_tokens more."""
        ids = np.concatenate([self.token_ids, np.array(self.sampled, np.int32)])
        left = self.params.max_tokens - len(self.sampled)
        most = min(slice_tokens, left)
        return ids, dataclasses.replace(self.params, max_tokens=most)

    def add(
        self, done: Completion, decode: Callable[[Sequence[int]], str] | None
    ) -> None:
        """Takes in an answer, and sets `stop` if the turn ends with it.

        A stop string that began in an earlier slice is found here, and what was
        sampled after it is dropped: the server has seen its own slice only.
        """
        checked = len(self.sampled)
        if not checked:
            self.version, self.cached_tokens = done.weight_version, done.cached_tokens
        self.sampled += done.token_ids.tolist()
        self.logprobs += done.logprobs.tolist()
        if done.top_logprobs is not None:
            self.tops += list(done.top_logprobs)
        keep = None
        if self.params.stop_strings and 0 < checked < len(self.sampled):
            keep = tokens_to_stop(
                self.sampled, self.params.stop_strings, decode, checked=checked
            )
        if self.released:
            self.stop = "abort"
        elif keep is not None:
            del self.sampled[keep:], self.logprobs[keep:], self.tops[keep:]
            self.stop = "stop"
        elif done.stop == "stop":
            self.stop = "stop"
        elif len(self.sampled) == self.params.max_tokens:
            self.stop = "length"

    def restart(self) -> None:
        """Forgets what has been sampled."""
        self.sampled.clear()
        self.logprobs.clear()
        self.tops.clear()

    def completion(self) -> Completion:
        """What the caller gets; call it when `stop` is set."""
        return Completion(
            np.array(self.sampled, np.int32),
            np.array(self.logprobs, np.float32),
            self.stop,
            self.version or 0,
            cached_tokens=self.cached_tokens,
            top_logprobs=self._top_logprobs(),
        )

    def _top_logprobs(self) -> np.ndarray | None:
        wanted = self.params.top_logprobs
        if not wanted:
            return None
        return np.reshape(np.array(self.tops, np.float32), (len(self.sampled), wanted))
