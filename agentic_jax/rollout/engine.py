"""What generates: the protocol that every engine keeps, and its two records."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np


class EngineError(RuntimeError):
    """An engine failed; the trajectory that waited for it is a fault."""


@dataclass(frozen=True)
class SamplingParams:
    """How one request samples.

    Attributes:
        max_tokens: most tokens to sample, at least 1.
        temperature: divides the logits; 0 is greedy (log-probabilities then at 1).
        top_p: nucleus mass in (0, 1]; training requires 1.
        top_k: most likely tokens kept; 0 keeps all; training requires 0.
        stop_token_ids: sampling one of these ends the request; it stays in the ids.
        stop_strings: the same for decoded text; the ids are kept to the end of the
            token that completes the string.
        seed: the request's own randomness: the same seed, prompt and weights give the
            same tokens whatever else the engine is doing.
        top_logprobs: of how many of the likeliest tokens to tell at each sampled one.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop_token_ids: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()
    seed: int = 0
    top_logprobs: int = 0


@dataclass(frozen=True)
class Completion:
    """What one request sampled.

    Attributes:
        token_ids: [n] int32, stop tokens kept.
        logprobs: [n] float32 log-softmax(logits / temperature) of each sampled token.
        stop: "stop" on a stop id or string, "length" at max_tokens, "abort".
        weight_version: of the parameters that sampled it.
        cached_tokens: of the prompt, that the engine still held.
        top_logprobs: [n, k] float32 of the k likeliest tokens at each place, falling,
            nats at the sampling temperature; None where not asked for.
    """

    token_ids: np.ndarray
    logprobs: np.ndarray
    stop: Literal["stop", "length", "abort"]
    weight_version: int
    cached_tokens: int = 0
    top_logprobs: np.ndarray | None = None


@dataclass(frozen=True)
class ServerLoad:
    """What an engine or a server reports of itself.

    Attributes:
        running: requests being decoded.
        waiting: requests in its queue.
        used_tokens: positions of the key-value cache that they hold.
        capacity_tokens: positions that there are.
    """

    running: int
    waiting: int
    used_tokens: int
    capacity_tokens: int


class Engine(Protocol):
    """Continues token ids.

    A session is one trajectory: an engine keeps its cache between generate calls that
    name the same session, until release.
    """

    async def generate(
        self, token_ids: Sequence[int], params: SamplingParams, *, session: str
    ) -> Completion:
        """Samples a continuation; raises EngineError if it cannot."""
        ...

    async def release(self, session: str) -> None:
        """Frees what the session holds; unknown sessions are ignored."""
        ...

    async def update_weights(self, params: Any, version: int) -> None:
        """Swaps the weights; later completions carry the new version."""
        ...

    async def close(self) -> None:
        """Ends the engine; waiting requests raise EngineError."""
        ...
