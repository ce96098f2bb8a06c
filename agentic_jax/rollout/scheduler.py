"""Which server runs which trajectory, and when: decisions by tokens of cache.

A server is overcommitted when what runs on it outgrows its key-value cache: it then
throws work out and computes it again. Reserving for each trajectory the most that it
may ever hold prevents this and leaves three quarters of the cache empty, because most
end early. Here a trajectory is granted room for one request at a time, at most a
slice of tokens, so that three rules suffice:

- Growth: a grant leaves so much free that the longest trajectory of the server can
  grow to the longest allowed. That one can always go on, and when it ends, it frees
  enough for the next. Nothing is ever thrown out, and nothing waits for ever.
- Start: a trajectory starts where the most that all will hold at once, as expected
  from how trajectories have ended so far, stays within the cache.
- Order: where several wait, the one with the most tokens goes first, so that the
  longest do not end alone; those that have started go before those that have not.

Pure: no clock, no input or output; the fleet and the simulation call the same code.
"""

import bisect
import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_CAUTION = 1.05  # Times the expected peak: half of the peaks lie above it.
_MEMORY = 1_000  # Ended trajectories that the expectation looks back on.


class Claim(NamedTuple):
    """A trajectory that waits for room; of two, the greater goes first.

    Attributes:
        size: tokens that it holds; of its context, if it is on no server.
        order: the later it came, the smaller.
        tokens: that it will have at most when its next request ends.
        needed: how many of these it does not hold yet.
        session: its name.
    """

    size: int
    order: int
    tokens: int
    needed: int
    session: str


class Grant(NamedTuple):
    """Leave for a session to run its request on a server."""

    session: str
    server: int


def expected_peak(held_tokens: float, count: int, *, growth: float) -> float:
    """The most tokens that trajectories are expected to hold at one time from now on.

    If each ends at any token with probability 1 / growth, then after t more tokens
    they hold (held + count t) exp(-t / growth), which is greatest at once, or at
    t = growth - held / count:

        count growth exp(held / (count growth) - 1)

    Args:
        held_tokens: by all of them now.
        count: how many they are.
        growth: mean tokens by which a trajectory grows, above 0.
    """
    final = count * growth
    if held_tokens >= final:
        return held_tokens
    return final * math.exp(held_tokens / final - 1.0)


def choose_server(free_tokens: Sequence[float], tokens_needed: float) -> int | None:
    """The server with the most free tokens, if they are enough.

    Args:
        free_tokens: of each server; negative where nothing may start.
        tokens_needed: by the trajectory, at least 0.

    Returns:
        Its index, the first of equals; None if there is no room anywhere.
    """
    best = max(range(len(free_tokens)), key=free_tokens.__getitem__, default=None)
    if best is None or free_tokens[best] < tokens_needed:
        return None
    return best


def admit(queue: Sequence[Claim], free_tokens: float, *, longest: int) -> list[Claim]:
    """Those of a server's waiting trajectories that may go on now, longest first.

    Nobody overtakes: the first that does not fit ends the list. Room for the longest
    trajectory of the server to grow is set aside, so what it takes costs nothing of
    free_tokens; and whoever outgrows it takes over what is set aside.

    Args:
        queue: trajectories of this server, sorted upwards.
        free_tokens: neither held nor set aside.
        longest: tokens of the longest trajectory of the server.

    Returns:
        The end of the queue, reversed.
    """
    admitted = []
    for claim in reversed(queue):
        cost = claim.needed - max(claim.tokens - longest, 0)
        if cost > max(free_tokens, 0):
            break
        free_tokens -= cost
        longest = max(longest, claim.tokens)
        admitted.append(claim)
    return admitted


@dataclass
class _Server:
    """What a server holds of ours.

    Attributes:
        capacity: tokens; 0 while it is out of service.
        others: tokens that somebody else seems to hold.
        held: tokens granted.
        sizes: session -> tokens granted to it.
        heap: (-tokens, session) of every grant, outdated ones too.
        queue: sessions of it that wait to go on, sorted.
    """

    capacity: int = 0
    others: int = 0
    held: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    heap: list[tuple[int, str]] = field(default_factory=list)
    queue: list[Claim] = field(default_factory=list)

    def resize(self, session: str, tokens: int) -> None:
        """Notes that a session now holds so many tokens."""
        self.held += tokens - self.sizes.get(session, 0)
        self.sizes[session] = tokens
        heapq.heappush(self.heap, (-tokens, session))
        if len(self.heap) > 4 * len(self.sizes) + 64:
            self.heap = [(-tokens, name) for name, tokens in self.sizes.items()]
            heapq.heapify(self.heap)

    def drop(self, session: str) -> None:
        """Notes that a session holds nothing any more."""
        self.held -= self.sizes.pop(session)

    def longest(self) -> int:
        """Tokens of the longest session."""
        heap = self.heap
        while heap and self.sizes.get(heap[0][1]) != -heap[0][0]:
            heapq.heappop(heap)
        return -heap[0][0] if heap else 0


class Ledger:
    """Who holds how many tokens on which server, and who waits for more.

    A session asks, is granted a server, settles when its request has ended, asks
    again, and ends. It stays on its server, where its prefix is cached, until it ends
    or the server closes; between two requests (a tool call) it keeps what it holds.
    Every change returns the grants that it makes possible. Costs of a change are
    logarithmic in the number of sessions, plus one look at each server.

    Args:
        servers: how many there are; all are closed at first.
        length: most tokens of a trajectory.

    Raises:
        ValueError: a size below 1.
    """

    def __init__(self, servers: int, *, length: int):
        if min(servers, length) < 1:
            raise ValueError(f"{servers} servers and length {length}; wanted >= 1")
        self._length = length
        self._servers = [_Server() for _ in range(servers)]
        self._free = [-1.0] * servers  # As expected, for who has not started.
        self._queue: list[Claim] = []  # Of those on no server, sorted.
        self._home: dict[str, int] = {}
        self._context: dict[str, int] = {}
        self._asked: dict[str, Claim] = {}
        self._order = 0
        self._grown, self._ended = length / 4, 1.0  # A guess that counts as one.

    @property
    def growth(self) -> float:
        """Tokens by which a trajectory grows on average.

        All growth over the number of ends: trajectories that still run count with
        what they have grown, so the short ones, which end first, do not mislead.
        """
        return max(self._grown, 1.0) / self._ended

    @property
    def held_fraction(self) -> float:
        """Granted tokens over the capacity of the open servers."""
        capacity = sum(server.capacity for server in self._servers)
        return sum(server.held for server in self._servers) / max(capacity, 1)

    def server_of(self, session: str) -> int | None:
        """Where a session holds tokens."""
        return self._home.get(session)

    def open_server(self, server: int, capacity: int) -> list[Grant]:
        """Takes a server into service.

        Raises:
            ValueError: it cannot hold one trajectory of full length.
        """
        if capacity < self._length:
            raise ValueError(
                f"server {server} holds {capacity} tokens, and a trajectory may have "
                f"{self._length}: give it more memory or lower the length"
            )
        self._servers[server].capacity = capacity
        return self._grants(server)

    def close_server(self, server: int) -> list[Grant]:
        """Takes a server out; its sessions hold nothing and wait for other servers."""
        closed, self._servers[server] = self._servers[server], _Server()
        for session in closed.sizes:
            del self._home[session]
        for claim in closed.queue:
            size = self._context[claim.session]
            claim = claim._replace(size=size, needed=claim.tokens)
            self._asked[claim.session] = claim
            bisect.insort(self._queue, claim)
        return self._grants(server)

    def set_others(self, server: int, tokens: int) -> list[Grant]:
        """Counts tokens as taken by somebody else on an open server."""
        self._servers[server].others = tokens
        return self._grants(server)

    def ask(self, session: str, *, context_tokens: int, tokens: int) -> list[Grant]:
        """Waits for room for `tokens`, of which the session has context_tokens now.

        Raises:
            ValueError: more than a trajectory may have, or it waits already.
        """
        if not context_tokens < tokens <= self._length or session in self._asked:
            raise ValueError(
                f"session {session!r} has {context_tokens} tokens and asks for "
                f"{tokens} of {self._length}, waiting: {session in self._asked}"
            )
        self._order -= 1
        self._grow(session, context_tokens)
        home = self._home.get(session)
        if home is None:
            queue, size, held = self._queue, context_tokens, 0
        else:
            queue = self._servers[home].queue
            size = held = self._servers[home].sizes[session]
        claim = Claim(size, self._order, tokens, tokens - held, session)
        self._asked[session] = claim
        bisect.insort(queue, claim)
        return self._start() if home is None else self._grants(home)

    def settle(self, session: str, tokens: int) -> list[Grant]:
        """Notes that the session's request has ended and that it has `tokens` now."""
        self._grow(session, tokens)
        home = self._home.get(session)
        if home is None:
            return []
        self._servers[home].resize(session, tokens)
        return self._grants(home)

    def move(self, session: str) -> list[Grant]:
        """Lets a session hold nothing, so that it may ask anywhere."""
        home = self._home.pop(session, None)
        if home is None:
            return []
        self._servers[home].drop(session)
        return self._grants(home)

    def end(self, session: str) -> list[Grant]:
        """Forgets a session, whether it runs or waits; unknown ones are ignored."""
        if session not in self._context:
            return []
        claim = self._asked.pop(session, None)
        home = self._home.get(session)
        if claim is not None:
            queue = self._queue if home is None else self._servers[home].queue
            del queue[bisect.bisect_left(queue, claim)]
        del self._context[session]
        keep = 1.0 - 1.0 / _MEMORY
        self._grown, self._ended = self._grown * keep, self._ended * keep + 1.0
        return self._start() if home is None else self.move(session)

    def _grow(self, session: str, tokens: int) -> None:
        """Notes how long a session has become."""
        self._grown += max(tokens - self._context.get(session, tokens), 0)
        self._context[session] = tokens

    def _grants(self, index: int) -> list[Grant]:
        """What can go on, and then start, after a change of one server."""
        server = self._servers[index]
        grants = []
        if server.queue:
            longest = server.longest()
            aside = max(self._length - longest, 0)
            free = server.capacity - server.others - server.held - aside
            for claim in admit(server.queue, free, longest=longest):
                server.queue.pop()
                grants.append(self._grant(claim, index))
        self._look(index)
        return grants + self._start()

    def _start(self) -> list[Grant]:
        """Places whoever is on no server, longest first, until one does not fit."""
        grants = []
        while self._queue:
            claim = self._queue[-1]
            peak = expected_peak(claim.size, 1, growth=self.growth)
            index = choose_server(self._free, max(peak, claim.tokens))
            if index is None:
                break
            self._queue.pop()
            self._home[claim.session] = index
            grants.append(self._grant(claim, index))
            self._look(index)
        return grants

    def _grant(self, claim: Claim, index: int) -> Grant:
        del self._asked[claim.session]
        self._servers[index].resize(claim.session, claim.tokens)
        return Grant(claim.session, index)

    def _look(self, index: int) -> None:
        """Brings up to date how many tokens are free for who has not started."""
        server = self._servers[index]
        if not server.capacity or server.queue:
            self._free[index] = -1.0
            return
        used, count = server.held, len(server.sizes)
        if count:
            aside = max(self._length - server.longest(), 0)
            peak = _CAUTION * expected_peak(used, count, growth=self.growth)
            used = max(peak, used + aside)
        self._free[index] = server.capacity - server.others - used
