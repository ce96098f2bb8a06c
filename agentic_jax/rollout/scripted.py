"""An engine that says what it is told: for tests, notebooks and teacher-made data."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from agentic_jax.rollout.engine import Completion, EngineError, SamplingParams

Reply = str | Sequence[int]


class ScriptedEngine:
    """An Engine whose completions are given replies, with log-probability 0.

    The other likeliest tokens that it tells of have log-probability -inf.

    Args:
        replies: either session -> its replies in order, or a function of the whole
            context [n] int32 that returns the reply. A reply is text or token ids and
            includes its own stop token.
        encode: text to token ids; needed for text only.
    """

    def __init__(
        self,
        replies: Mapping[str, Sequence[Reply]] | Callable[[np.ndarray], Reply],
        *,
        encode: Callable[[str], Sequence[int]] | None = None,
    ):
        self._replies = replies
        self._encode = encode
        self._spoken: dict[str, int] = {}
        self._version = 0
        self._closed = False

    async def generate(
        self, token_ids: Sequence[int], params: SamplingParams, *, session: str
    ) -> Completion:
        """The next reply, cut at max_tokens, where stop becomes "length".

        Raises:
            ValueError: the prompt is empty or max_tokens is below 1.
            EngineError: the session has no reply left, or the engine is closed.
        """
        if self._closed:
            raise EngineError("the engine has ended: it was closed")
        if len(token_ids) == 0:
            raise ValueError("the prompt is empty; sampling needs at least one token")
        if params.max_tokens < 1:
            raise ValueError(f"max_tokens is {params.max_tokens}; wanted at least 1")
        reply = self._next_reply(np.asarray(token_ids, np.int32), session)
        if isinstance(reply, str):
            reply = self._encode(reply)
        ids = np.array(list(reply[: params.max_tokens]), np.int32)
        tops = None
        if params.top_logprobs:
            tops = np.full((len(ids), params.top_logprobs), -np.inf, np.float32)
            tops[:, 0] = 0.0
        return Completion(
            top_logprobs=tops,
            token_ids=ids,
            logprobs=np.zeros(len(ids), np.float32),
            stop="stop" if len(reply) <= params.max_tokens else "length",
            weight_version=self._version,
        )

    async def release(self, session: str) -> None:
        """Lets the session start again with its first reply."""
        self._spoken.pop(session, None)

    async def update_weights(self, params: Any, version: int) -> None:
        """Only notes the version."""
        self._version = version

    async def close(self) -> None:
        """Later requests raise EngineError."""
        self._closed = True

    def _next_reply(self, context: np.ndarray, session: str) -> Reply:
        if callable(self._replies):
            return self._replies(context)
        number = self._spoken.get(session, 0)
        replies = self._replies.get(session, ())
        if number >= len(replies):
            raise EngineError(
                f"session {session!r} has {len(replies)} replies and wants one more"
            )
        self._spoken[session] = number + 1
        return replies[number]
