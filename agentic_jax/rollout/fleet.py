"""Many servers as one engine: placed by free cache, whole when some of them fail."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import logging

from agentic_jax.rollout.engine import Completion, EngineError, SamplingParams
from agentic_jax.rollout.membership import Member, Membership
from agentic_jax.rollout.scheduler import Grant, Ledger
from agentic_jax.rollout.sglang import ServerError, SGLangServer
from agentic_jax.rollout.turn import FleetTurn


class Fleet:
    """An Engine over servers: none overcommitted, nothing lost when some fail.

    A turn is sampled in requests of at most slice_tokens, each of which has room
    reserved by scheduler.Ledger, on the server that has the prefix cached. A request
    that fails (ServerError) or was answered with other weights than the current ones
    is repeated on another server from its token ids; only whole answers are kept, so
    nothing is sampled twice. Requests carry the turn's seed: servers that draw by seed
    and position sample the same tokens however a turn is cut. Tool calls hold nothing
    but cache.

    Weights are published to disk, then loaded by all servers at once when no turn is
    under way; turns that start meanwhile wait. A turn that could not go on for want of
    room starts again on the new weights, so that no turn mixes two.

    Args:
        servers: clients, with the surface of SGLangServer.
        publish: (params, version) -> directory that servers can read; runs in a thread.
        decode: token ids to text; needed for stop strings only.
        length: most tokens of a trajectory, prompt and response.
        slice_tokens: most tokens of one request.
        max_attempts: requests of one turn that may fail; the last failure is raised.
        wait_s: seconds to wait when no server is in service.
        check_s: seconds between two looks at a server.
        params: published as version 0 if generate is called before update_weights.

    Raises:
        ValueError: no servers, or a size or a time that is not positive.
    """

    def __init__(
        self,
        servers: Sequence[SGLangServer],
        *,
        publish: Callable[[Any, int], str | os.PathLike],
        decode: Callable[[Sequence[int]], str] | None = None,
        length: int,
        slice_tokens: int = 512,
        max_attempts: int = 3,
        wait_s: float = 600.0,
        check_s: float = 5.0,
        params: Any = None,
    ):
        limits = {"slice_tokens": slice_tokens, "max_attempts": max_attempts}
        limits |= {"wait_s": wait_s, "check_s": check_s}
        for name, value in limits.items():
            if not value > 0:
                raise ValueError(f"{name} is {value}; wanted a positive number")
        self._publish, self._decode, self._params = publish, decode, params
        self._length, self._slice, self._max = length, slice_tokens, max_attempts
        self._ledger = Ledger(len(servers), length=length)
        self._servers = Membership(
            servers,
            self._ledger,
            act=self._act,
            give_up=self._fail,
            check_s=check_s,
            wait_s=wait_s,
        )
        self._turns: dict[str, FleetTurn] = {}
        self._counts: Counter[str] = Counter()
        self._waited_s = 0.0
        self._closed = False
        self._updating = asyncio.Lock()
        self._turns_open, self._slices_open = asyncio.Event(), asyncio.Event()
        self._turns_open.set()
        self._slices_open.set()
        self._moving = 0
        self._still = asyncio.Event()  # No turn moves.
        self._still.set()

    async def generate(
        self, token_ids: Sequence[int], params: SamplingParams, *, session: str
    ) -> Completion:
        """Samples a continuation of token_ids; see Engine.

        Raises:
            ValueError: the prompt is empty or does not fit, the session has a request
                already, or a server says that the request is wrong.
            EngineError: the fleet is closed, max_attempts requests failed, or no
                server was in service for wait_s.
        """
        token_ids = np.asarray(token_ids, np.int32)
        self._check(token_ids, params, session)
        turn = self._turns[session] = FleetTurn(token_ids, params, session)
        try:
            await self._start()
            while turn.stop is None:
                member = await self._room(turn)
                if turn.released:
                    turn.stop = "abort"
                elif member is not None:
                    await self._sample(turn, member)
        finally:
            self._move(turn, False)
            del self._turns[session]
        self._counts["finished"] += 1
        self._counts["sampled"] += len(turn.sampled)
        return turn.completion()

    async def release(self, session: str) -> None:
        """Frees what the session holds and ends its request if one runs; see Engine."""
        turn = self._turns.get(session)
        if turn is not None:
            turn.released = True
            if turn.room is not None and not turn.room.done():
                turn.room.set_result(None)
        home = self._ledger.server_of(session)
        if home is not None:
            await self._servers.members[home].server.release(session)
        self._act(self._ledger.end(session))

    async def update_weights(self, params: Any, version: int) -> None:
        """Publishes weights and has every server load them; see the class.

        Raises:
            EngineError: the fleet is closed, or no server was in service for wait_s.
        """
        async with self._updating:
            await self._set_weights(params, version)

    async def close(self) -> None:
        """Ends the engine; requests that wait or run raise EngineError."""
        self._closed = True
        await self._servers.close()

    def stats(self) -> dict[str, float]:
        """Counts since the start, and what is held now.

        Returns:
            finished_requests; sampled_tokens; reused_tokens of prompts, which a server
            held, and prefilled_tokens, which it computed; slices; retries, slices that
            were repeated; restarted_turns; faults; rejoins; servers_in_service;
            queue_wait_s, waited for room by all; held_fraction of the cache; expected
            growth_tokens of a trajectory.
        """
        counts, servers = self._counts, self._servers
        return {
            "finished_requests": counts["finished"],
            "sampled_tokens": counts["sampled"],
            "reused_tokens": counts["cached"],
            "prefilled_tokens": counts["context"] - counts["cached"],
            "slices": counts["slices"],
            "retries": counts["retries"],
            "restarted_turns": counts["restarted"],
            "faults": servers.counts["faults"],
            "rejoins": servers.counts["rejoins"],
            "servers_in_service": servers.num_serving,
            "queue_wait_s": self._waited_s,
            "held_fraction": self._ledger.held_fraction,
            "growth_tokens": self._ledger.growth,
        }

    def _check(
        self, token_ids: np.ndarray, params: SamplingParams, session: str
    ) -> None:
        size, most = len(token_ids), params.max_tokens
        if self._closed:
            raise EngineError("the engine has ended: it was closed")
        if size == 0:
            raise ValueError("the prompt is empty; sampling needs at least one token")
        if most < 1:
            raise ValueError(f"max_tokens is {most}; wanted at least 1")
        if size + most > self._length:
            raise ValueError(
                f"a prompt of {size} tokens and max_tokens {most} need {size + most} "
                f"positions; the fleet's length is {self._length}"
            )
        if params.stop_strings and self._decode is None:
            raise ValueError("stop_strings need Fleet(..., decode=...)")
        if session in self._turns:
            raise ValueError(f"session {session!r} has a request already")

    async def _start(self) -> None:
        """Makes the first contact, and publishes the first weights if need be."""
        self._servers.start()
        if self._servers.version is None:
            async with self._updating:  # Somebody else may be about it.
                if self._servers.version is None and self._params is not None:
                    await self._set_weights(self._params, 0)

    async def _set_weights(self, params: Any, version: int) -> None:
        if self._closed:
            raise EngineError("the engine has ended: it was closed")
        self._servers.start()
        path = await asyncio.to_thread(self._publish, params, version)
        await self._servers.some_serving()
        self._turns_open.clear()
        try:
            while self._moving:
                self._still.clear()
                await self._still.wait()
            self._slices_open.clear()
            await self._servers.update(path, version)
            self._params = None
        finally:
            self._turns_open.set()
            self._slices_open.set()

    async def _room(self, turn: FleetTurn) -> Member | None:
        """Waits until the turn may sample its next slice; where, or None to look again.

        Raises:
            EngineError: there is no server, nor hope for one.
        """
        if self._servers.failure is not None:
            raise self._servers.failure
        _, params = turn.next_request(self._slice)
        size = turn.num_tokens
        turn.room = asyncio.get_running_loop().create_future()
        began = time.monotonic()
        self._act(
            self._ledger.ask(
                turn.session, context_tokens=size, tokens=size + params.max_tokens
            )
        )
        try:
            if not turn.room.done():
                self._move(turn, False)
            index = await turn.room
            gate = self._slices_open if turn.sampled else self._turns_open
            while not gate.is_set():
                await gate.wait()
            if self._servers.failure is not None:
                raise self._servers.failure
        except BaseException:
            self._act(self._ledger.end(turn.session))
            raise
        finally:
            turn.room = None
            self._waited_s += time.monotonic() - began
        if index is None:
            return None
        if turn.sampled and turn.version != self._servers.version:
            logging.info("a turn of %s starts again on new weights", turn.session)
            self._counts["restarted"] += 1
            turn.restart()
        if self._ledger.server_of(turn.session) != index:
            return None  # It went out of service just now.
        self._move(turn, True)
        return self._servers.members[index]

    async def _sample(self, turn: FleetTurn, member: Member) -> None:
        """One request, and what follows from it."""
        done = await self._request(turn, member)
        if done is None:
            return
        member.strikes = 0
        self._counts["slices"] += 1
        self._counts["context"] += turn.num_tokens
        self._counts["cached"] += done.cached_tokens
        turn.add(done, self._decode)
        if not turn.released:
            self._act(self._ledger.settle(turn.session, turn.num_tokens))
        if turn.stop is None and done.stop == "abort":
            self._count_failure(turn, "somebody else aborts its requests")

    async def _request(self, turn: FleetTurn, member: Member) -> Completion | None:
        """A whole answer with the current weights, or None after a fault.

        Raises:
            EngineError: it was the last attempt.
        """
        ids, params = turn.next_request(self._slice)
        task = asyncio.ensure_future(
            member.server.generate(ids, params, session=turn.session)
        )
        member.tasks[task] = len(ids) + params.max_tokens
        try:
            await asyncio.wait((task,))
        finally:
            task.cancel()  # Does nothing unless this call is cancelled.
            del member.tasks[task]
        try:
            if task.cancelled():
                raise ServerError(f"{member.server.url} went out of service")
            done, version = task.result(), self._servers.version
            if version is not None and done.weight_version != version:
                raise ServerError(
                    f"{member.server.url} answered with weights "
                    f"{done.weight_version}, and {version} are set"
                )
            return done
        except ServerError as error:
            if not self._closed:
                self._servers.fault(member, error)
            self._act(self._ledger.move(turn.session))
            self._count_failure(turn, str(error))
            return None

    def _count_failure(self, turn: FleetTurn, why: str) -> None:
        """Lets a turn go on from what it has, unless it has failed too often."""
        if self._closed:
            raise EngineError("the fleet was closed")
        turn.attempts += 1
        if turn.attempts >= self._max:
            raise EngineError(
                f"{turn.attempts} requests of a turn of {turn.session} failed: {why}"
            )
        self._counts["retries"] += 1
        logging.info(
            "%s goes on from token %d, attempt %d of %d: %s",
            turn.session,
            turn.num_tokens,
            turn.attempts + 1,
            self._max,
            why,
        )

    def _act(self, grants: list[Grant]) -> None:
        """Lets sessions go on to which the ledger has granted room."""
        for session, index in grants:
            turn = self._turns[session]
            if turn.sampled:
                self._move(turn, True)
            if not turn.room.done():
                turn.room.set_result(index)

    def _move(self, turn: FleetTurn, moving: bool) -> None:
        """Notes whether a turn is under way."""
        self._moving += moving - turn.moving
        turn.moving = moving
        if not self._moving:
            self._still.set()

    def _fail(self, error: EngineError) -> None:
        """Raises an error in whoever waits for room."""
        for turn in self._turns.values():
            if turn.room is not None and not turn.room.done():
                turn.room.set_exception(error)
