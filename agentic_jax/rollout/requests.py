"""One generate call on its way through the embedded engine."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from agentic_jax.models.decoding import TOP
from agentic_jax.rollout.engine import SamplingParams

MAX_STOP_IDS = 8  # Stop ids that the device compares at each step.


@dataclass(eq=False)
class Request:
    """What was asked for, and what has been sampled so far.

    Attributes:
        token_ids: [n] int32 prompt.
        params: how to sample.
        session: whose row of the cache is used.
        future: resolves to the Completion.
        sampled: token ids so far.
        logprobs: of each of them, nats.
        tops: [k] nats of the likeliest tokens at each of them, where asked for.
        cached: tokens of the prompt that the cache held instead of computing them.
    """

    token_ids: np.ndarray
    params: SamplingParams
    session: str
    future: Future = field(default_factory=Future)
    sampled: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    tops: list[np.ndarray] = field(default_factory=list)
    cached: int = 0

    @property
    def num_tokens(self) -> int:
        """Prompt and sampled tokens so far."""
        return len(self.token_ids) + len(self.sampled)

    @property
    def num_left(self) -> int:
        """How many tokens may still be sampled."""
        return self.params.max_tokens - len(self.sampled)

    @property
    def stored(self) -> np.ndarray:
        """[n] int32: what the cache holds of it, every token but the last known."""
        sampled = np.array(self.sampled, np.int32)
        return np.concatenate([self.token_ids, sampled])[:-1]


def check_request(
    token_ids: np.ndarray, params: SamplingParams, *, vocab_size: int, length: int
) -> None:
    """Raises ValueError, with the numbers, for what cannot be sampled.

    Args:
        token_ids: [n] int32 prompt.
        params: how to sample.
        vocab_size: ids lie below it.
        length: most tokens that prompt and response may have together.
    """
    size, need = len(token_ids), len(token_ids) + params.max_tokens
    if size == 0:
        raise ValueError("the prompt is empty; sampling needs at least one token")
    if token_ids.min() < 0 or token_ids.max() >= vocab_size:
        raise ValueError(
            f"token ids {token_ids.min()} to {token_ids.max()} do not lie in the "
            f"vocabulary of {vocab_size}"
        )
    if params.max_tokens < 1:
        raise ValueError(f"max_tokens is {params.max_tokens}; wanted at least 1")
    if need > length:
        raise ValueError(
            f"a prompt of {size} tokens and max_tokens {params.max_tokens} need {need} "
            f"positions; the engine's length is {length}"
        )
    if params.temperature < 0 or not 0 < params.top_p <= 1 or params.top_k < 0:
        raise ValueError(
            "wanted temperature >= 0, 0 < top_p <= 1 and top_k >= 0, not "
            f"{params.temperature}, {params.top_p} and {params.top_k}"
        )
    if not 0 <= params.seed < 1 << 64:
        raise ValueError(f"seed {params.seed} is not in [0, 2**64)")
    if len(params.stop_token_ids) > MAX_STOP_IDS:
        raise ValueError(
            f"{len(params.stop_token_ids)} stop ids; at most {MAX_STOP_IDS} fit"
        )
    if not 0 <= params.top_logprobs <= min(TOP, vocab_size):
        raise ValueError(
            f"top_logprobs is {params.top_logprobs}; this engine tells of the "
            f"{min(TOP, vocab_size)} likeliest tokens at most"
        )
    if "" in params.stop_strings:
        raise ValueError("a stop string is empty; it would stop at once")


def draw_fields(requests: Sequence[Request | None]) -> dict[str, np.ndarray]:
    """The fields of decoding.Draws for [R] requests; None is an idle row."""
    size = len(requests)
    token, position, left, top_k = np.zeros((4, size), np.int32)
    temperature, top_p = np.ones((2, size), np.float32)
    seed = np.zeros((size, 2), np.uint32)
    stop_ids = np.full((size, MAX_STOP_IDS), -1, np.int32)
    wants_top = np.zeros(size, bool)
    for i, request in enumerate(requests):
        if request is None:
            continue
        params = request.params
        token[i] = (request.sampled or request.token_ids)[-1]
        position[i], left[i] = request.num_tokens - 1, request.num_left
        seed[i] = divmod(params.seed, 1 << 32)
        temperature[i] = params.temperature
        top_p[i], top_k[i] = params.top_p, params.top_k
        stop_ids[i, : len(params.stop_token_ids)] = params.stop_token_ids
        wants_top[i] = params.top_logprobs > 0
    return {
        "token": token,
        "position": position,
        "left": left,
        "seed": seed,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "stop_ids": stop_ids,
        "wants_top": wants_top,
    }
