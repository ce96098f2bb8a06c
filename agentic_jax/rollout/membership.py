"""Which servers of a fleet are in service: faults, health checks, weights, return."""

import asyncio
import contextlib
import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Sequence

from absl import logging

from agentic_jax.rollout.engine import EngineError, SamplingParams
from agentic_jax.rollout.scheduler import Grant, Ledger
from agentic_jax.rollout.sglang import ServerError, SGLangServer

PROBE = "probe"  # The session of requests that only try a server.
_MOST_DOUBLINGS = 6  # Of the pause before a server that keeps failing comes back.


@dataclasses.dataclass(eq=False)
class Member:
    """One server of a fleet.

    Attributes:
        server: the client of it.
        index: of it in the ledger.
        serving: whether it is in service.
        strikes: faults since its last good answer.
        tasks: our requests that run there, and the tokens granted to each.
        excess: tokens that others held there at the last look.
        out: set when it goes out of service.
    """

    server: SGLangServer
    index: int
    serving: bool = False
    strikes: int = 0
    tasks: dict[asyncio.Future, int] = dataclasses.field(default_factory=dict)
    excess: int = 0
    out: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)


class Membership:
    """Takes servers out of service when they fail, and back when they are well.

    A fault takes a server out at once. What runs there goes on if it answers its health
    check, and is interrupted if not. It comes back when it is healthy, holds the
    current weights (it is told to load them if not), nothing of ours runs on it and it
    answers a request for one token; after each further fault it waits twice as long.

    Args:
        servers: of the fleet, at least one.
        ledger: told of every change.
        act: gets the grants that follow.
        give_up: called with the reason once no server has been in service for wait_s.
        check_s: seconds between two looks at a server.
        wait_s: seconds to wait for a server when there is none.
    """

    def __init__(
        self,
        servers: Sequence[SGLangServer],
        ledger: Ledger,
        *,
        act: Callable[[list[Grant]], None],
        give_up: Callable[[EngineError], None],
        check_s: float,
        wait_s: float,
    ):
        self.members = [Member(server, i) for i, server in enumerate(servers)]
        self.counts: Counter[str] = Counter()
        self.version: int | None = None
        self.failure: EngineError | None = None
        self._path: str | os.PathLike | None = None
        self._ledger, self._act, self._give_up = ledger, act, give_up
        self._check_s, self._wait_s = check_s, wait_s
        self._some = asyncio.Event()  # A server is in service, or there is no hope.
        self._deadline: asyncio.TimerHandle | None = None
        self._last: ServerError | None = None
        self._watches: list[asyncio.Task] = []

    @property
    def num_serving(self) -> int:
        """Servers in service."""
        return sum(member.serving for member in self.members)

    def start(self) -> None:
        """Begins to look after the servers, the first time; needs an event loop."""
        if self._watches:
            return
        self._wait_for_servers()
        self._watches = [asyncio.ensure_future(self._watch(m)) for m in self.members]
        for watch in self._watches:
            watch.add_done_callback(self._watch_ended)

    async def close(self) -> None:
        """Stops looking, ends what runs, and closes the clients."""
        self._abandon(EngineError("the fleet was closed"))
        if self._deadline is not None:
            self._deadline.cancel()
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        for member in self.members:
            _interrupt(member)
        await asyncio.gather(*(member.server.close() for member in self.members))

    async def some_serving(self) -> None:
        """Waits until a server is in service.

        Raises:
            EngineError: none has been for wait_s.
        """
        await self._some.wait()
        if self.failure is not None:
            raise self.failure

    def fault(self, member: Member, error: ServerError) -> None:
        """Takes a server out of service."""
        self.counts["faults"] += 1
        self._last = error
        if not member.serving:
            return  # A request that began before: the server knows already.
        member.strikes += 1
        member.serving = False
        member.out.set()
        logging.warning(
            "server %s is out of service, %d of %d are left: %s",
            member.server.url,
            self.num_serving,
            len(self.members),
            error,
        )
        if not self.num_serving:
            self._wait_for_servers()
        self._act(self._ledger.close_server(member.index))

    async def update(self, path: str | os.PathLike, version: int) -> None:
        """Has all servers in service load new weights, at once; nothing may run.

        One that does not is taken out, and loads them before it comes back.

        Raises:
            EngineError: there has been no server in service for wait_s.
        """
        self._path, self.version = path, version

        async def one(member: Member) -> None:
            try:
                await member.server.update_from_disk(path, version)
            except ServerError as error:
                self.fault(member, error)

        await asyncio.gather(*(one(m) for m in self.members if m.serving))
        await self.some_serving()
        logging.info("%d servers have weights %d", self.num_serving, version)

    async def _watch(self, member: Member) -> None:
        """Brings one server into service again and again."""
        while True:
            await self._join(member)
            await self._look_after(member)
            if not await member.server.healthy():
                _interrupt(member)
            if member.tasks:
                await asyncio.wait(member.tasks)
            doublings = min(member.strikes - 1, _MOST_DOUBLINGS)
            await asyncio.sleep(self._check_s * 2**doublings)

    async def _join(self, member: Member) -> None:
        """Returns when the server is in service."""
        asked = 0
        while not member.serving:
            try:
                await self._check_in(member)
            except (ServerError, ValueError) as error:
                if not asked:
                    logging.warning(
                        "server %s cannot serve yet, asking every %g s: %s",
                        member.server.url,
                        self._check_s,
                        error,
                    )
                asked += 1
                self._last = error
                await asyncio.sleep(self._check_s)

    async def _check_in(self, member: Member) -> None:
        """Takes a server into service if it is healthy and has the current weights."""
        server = member.server
        if not await server.healthy():
            raise ServerError(f"{server.url} is not healthy")
        capacity = (await server.load()).capacity_tokens
        loaded = await self._renew(member)
        grants = self._ledger.open_server(member.index, capacity)
        member.serving, member.excess = True, 0
        member.out.clear()
        self.counts["rejoins"] += member.strikes > 0
        self._some.set()
        self.failure = None
        if self._deadline is not None:
            self._deadline.cancel()
        logging.info(
            "server %s is in service: %d tokens of cache, weights %s",
            server.url,
            capacity,
            loaded,
        )
        self._act(grants)

    async def _renew(self, member: Member) -> int | None:
        """Makes sure that a server samples from the current weights; their version."""
        server = member.server
        # After a second fault in a row, what it holds may be spoilt.
        loaded = None if member.strikes > 1 else await server.weight_version()
        while self._path is not None:
            version = self.version
            if loaded != version:
                await server.update_from_disk(self._path, version)
            done = await server.generate([1], SamplingParams(1), session=PROBE)
            loaded = done.weight_version
            if loaded != version:
                raise ServerError(f"{server.url} samples from {loaded}, not {version}")
            if self.version == version:
                break
        return loaded

    async def _look_after(self, member: Member) -> None:
        """Corrects our counts by what the server reports, while it is in service."""
        while member.serving:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(member.out.wait(), self._check_s)
                return
            try:
                load = await member.server.load()
            except ServerError as error:
                if not await member.server.healthy():
                    self.fault(member, error)
                continue
            excess = max(load.used_tokens - sum(member.tasks.values()), 0)
            others = min(excess, member.excess)  # One report alone may be outdated.
            member.excess = excess
            if member.serving:
                self._act(self._ledger.set_others(member.index, others))

    def _watch_ended(self, watch: asyncio.Future) -> None:
        """An error of ours: nobody shall wait for it in vain."""
        if not watch.cancelled():
            self._abandon(EngineError(f"the fleet broke: {watch.exception()!r}"))

    def _wait_for_servers(self) -> None:
        """Gives up in wait_s unless a server comes into service."""
        self._some.clear()
        logging.warning("no server is in service; waiting up to %g s", self._wait_s)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._wait_s, self._no_hope)

    def _no_hope(self) -> None:
        self._abandon(
            EngineError(
                f"no server has been in service for {self._wait_s:g} s; start one and "
                f"run the same command again. The last fault: {self._last}"
            )
        )

    def _abandon(self, error: EngineError) -> None:
        self.failure = error
        self._some.set()
        self._give_up(error)


def _interrupt(member: Member) -> None:
    """Ends our requests that run on a server; whoever waits for them goes elsewhere."""
    for task in member.tasks:
        task.cancel()
