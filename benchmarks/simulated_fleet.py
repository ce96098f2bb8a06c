"""Servers and rollouts for benchmarks/scheduler.py; its docstring has the figures."""

import heapq
import itertools
from collections import OrderedDict, deque
from dataclasses import dataclass, field

import numpy as np

PROMPT_TOKENS = (200, 800)
MAX_RESPONSE = 16_384
LENGTH = PROMPT_TOKENS[1] + MAX_RESPONSE
CAPACITY = 820_000


def step_seconds(live_tokens: float) -> float:
    """Of one decoding step: all weights and all live cache are read once."""
    return 0.002 + (29.5e9 + 163_840 * live_tokens) / (0.6 * 5.3e12)


def prefill_seconds(tokens: int, *, alone: bool) -> float:
    """Of a prefill; one that is not alone joins another's reading of the weights."""
    return 2 * 14.8e9 * tokens / (0.4 * 1307e12) + step_seconds(0) * alone


@dataclass(eq=False)
class Rollout:
    """A rollout, drawn in advance, and how far it has come.

    Attributes:
        name: of its session.
        turns: sampled tokens, tool tokens and tool seconds of each turn.
        context: tokens that it has.
        limit: tokens that it may have at the end.
        turn: which turn is sampled next.
        sampled: tokens of that turn so far.
        server: where it last ran; -1 before.
        asked: seconds at which it asked for what it waits for.
    """

    name: str
    turns: list[tuple[int, int, float]]
    context: int
    limit: int
    turn: int = 0
    sampled: int = 0
    server: int = -1
    asked: float = 0.0

    @property
    def left(self) -> int:
        """Tokens to sample until the turn ends."""
        return self.turns[self.turn][0] - self.sampled

    @property
    def ended(self) -> bool:
        """Whether nothing is left to sample."""
        return self.turn + 1 == len(self.turns) and not self.left


def draw_rollouts(count: int, *, seed: int, group: int = 16) -> list[Rollout]:
    """Rollouts of count / group prompts, in order."""
    rng = np.random.default_rng(seed)
    sigma, groups = 0.8, -(-count // group)
    z = np.repeat(rng.normal(size=groups), group)[:count] + rng.normal(size=count)
    lengths = np.exp(np.log(4_096) - sigma**2 / 2 + sigma * z / np.sqrt(2))
    prompts = np.repeat(rng.integers(*PROMPT_TOKENS, groups), group)
    rollouts = []
    for i in range(count):
        length = int(np.clip(lengths[i], 64, MAX_RESPONSE))
        turns = int(min(rng.geometric(1 / 3), 16, 1 + length // 400))
        parts = rng.dirichlet(np.full(turns, 2.0)) * (length - 150 * (turns - 1))
        seconds = rng.exponential(0.3, turns) + 10.0 * (rng.random(turns) < 0.02)
        tools = [150] * (turns - 1) + [0]
        plan = [
            (max(int(part), 1), tool, float(second))
            for part, tool, second in zip(parts, tools, seconds, strict=True)
        ]
        prompt = int(prompts[i])
        rollouts.append(Rollout(str(i), plan, prompt, prompt + MAX_RESPONSE))
    return rollouts


@dataclass(eq=False)
class Server:
    """A server that decodes all its running requests in step.

    Attributes:
        index: of it.
        now: seconds.
        steps: decoding steps done; a request ends at a given step.
        live: tokens of running requests.
        idle: token-seconds of cache that no running request held.
        stall: seconds of prefill to do before the next step.
        prefilled: decoding step after which the last prefill came.
        step: seconds of a step, kept between two events.
        running: rollout -> steps at which its request began and ends.
        ends: a heap of (step, number, rollout), outdated ones too.
        cached: tokens of rollouts that do not run, the oldest first.
        waiting: rollouts in its own queue.
        ratio: share of what may be sampled that SGLang sets aside.
        version: of the next event that is planned.
    """

    index: int
    now: float = 0.0
    steps: float = 0.0
    live: float = 0.0
    idle: float = 0.0
    stall: float = 0.0
    prefilled: float = -1.0
    step: float = step_seconds(0)
    running: dict[Rollout, tuple[float, float]] = field(default_factory=dict)
    ends: list[tuple[float, int, Rollout]] = field(default_factory=list)
    cached: OrderedDict[Rollout, int] = field(default_factory=OrderedDict)
    waiting: deque[Rollout] = field(default_factory=deque)
    ratio: float = 0.7
    version: int = 0

    def advance(self, now: float) -> None:
        """Decodes until `now`."""
        seconds = now - self.now
        stalled = min(self.stall, seconds)
        steps = (seconds - stalled) / self.step if self.running else 0.0
        grown = steps * len(self.running)
        self.idle += seconds * (CAPACITY - self.live) - grown * (seconds - stalled) / 2
        self.live += grown
        self.steps += steps
        self.stall -= stalled
        self.ratio = max(self.ratio - steps * (0.7 - 0.098) / 600, 0.098)
        self.now = now

    def due(self) -> float:
        """Seconds at which a request ends or the cache is full; inf if none runs."""
        self.step = step_seconds(self.live)
        if not self.running:
            return float("inf")
        while self._outdated(self.ends[0]):
            heapq.heappop(self.ends)
        steps = self.ends[0][0] - self.steps
        steps = min(steps, (CAPACITY - self.live) / len(self.running))
        return self.now + self.stall + max(steps, 0.0) * self.step

    def begin(
        self, rollout: Rollout, tokens: int, *, uncached: int, number: int
    ) -> None:
        """Prefills `uncached` tokens and has `tokens` more sampled."""
        alone = self.steps >= self.prefilled + 1.0  # One prefill between two steps.
        self.prefilled = self.steps if alone else self.prefilled
        self.stall += prefill_seconds(uncached, alone=alone)
        self.running[rollout] = (self.steps, self.steps + tokens)
        heapq.heappush(self.ends, (self.steps + tokens, number, rollout))
        self.live += rollout.context
        rollout.server = self.index

    def stop(self, rollout: Rollout) -> int:
        """Ends a request; returns how many tokens it has sampled."""
        began, _ = self.running.pop(rollout)
        sampled = round(self.steps - began)
        self.live -= rollout.context + (self.steps - began)
        rollout.context += sampled
        rollout.sampled += sampled
        return sampled

    def stop_ended(self) -> list[Rollout]:
        """Ends the requests that are complete."""
        done = []
        while self.ends and self.ends[0][0] <= self.steps + 1e-6:
            entry = heapq.heappop(self.ends)
            if not self._outdated(entry):
                self.stop(entry[2])
                done.append(entry[2])
        return done

    def _outdated(self, entry: tuple[float, int, Rollout]) -> bool:
        return self.running.get(entry[2], (0.0, -1.0))[1] != entry[0]


class Simulation:
    """Plays rollouts to their ends under one policy, and counts.

    Args:
        rollouts: to play; changed.
        servers: how many.
        policy: see benchmarks/scheduler.py.
    """

    def __init__(self, rollouts: list[Rollout], servers: int, policy):
        self.rollouts, self.policy = rollouts, policy
        self.servers = [Server(i) for i in range(servers)]
        self.now = 0.0
        self.evictions = self.recomputed = self.requests = 0
        self._events: list[tuple[float, int, object, int]] = []
        self._numbers = itertools.count()
        self._waiting = 0
        self._last_wait = (0.0, 0.0)  # When it ended; idle token-seconds until then.

    def run(self) -> dict[str, float]:
        """Idle fractions, evictions, recomputed tokens, makespan."""
        self.policy.start(self)
        while self._events:
            self.now, _, subject, version = heapq.heappop(self._events)
            if isinstance(subject, Rollout):
                self.policy.turn(self, subject)
            elif version == subject.version:
                self._server_event(subject)
        if not all(rollout.ended for rollout in self.rollouts):
            raise RuntimeError("some rollouts have not ended")
        whole = CAPACITY * len(self.servers)
        when, idle = self._last_wait
        return {
            "idle": idle / (whole * when) if when else 0.0,
            "idle_to_end": self._idle() / (whole * self.now),
            "last_wait_s": when,
            "makespan_s": self.now,
            "evictions": self.evictions,
            "recomputed_tokens": self.recomputed,
            "requests": self.requests,
        }

    def wait(self, rollout: Rollout) -> None:
        """Notes that a rollout asks for its next request."""
        rollout.asked = self.now
        self._waiting += 1

    def begin(self, rollout: Rollout, server: Server, tokens: int, *, uncached: int):
        """Starts a request of at most `tokens`."""
        server.advance(self.now)
        self._waiting -= 1
        tokens = min(tokens, rollout.left)
        server.begin(rollout, tokens, uncached=uncached, number=next(self._numbers))
        self.requests += 1
        self.wake(server)
        if not self._waiting and rollout.asked < self.now:
            self._last_wait = (self.now, self._idle())

    def wake(self, server: Server) -> None:
        """Plans a server's next event anew."""
        server.version += 1
        due = server.due()
        if due < float("inf"):
            event = (due, next(self._numbers), server, server.version)
            heapq.heappush(self._events, event)

    def _server_event(self, server: Server) -> None:
        server.advance(self.now)
        done = server.stop_ended()
        for rollout in done:
            tool, seconds = rollout.turns[rollout.turn][1:]
            self.policy.request_ended(self, rollout, server)
            if not rollout.left and not rollout.ended:
                rollout.turn, rollout.sampled = rollout.turn + 1, 0
                rollout.context += tool
                event = (self.now + seconds, next(self._numbers), rollout, 0)
                heapq.heappush(self._events, event)
        if not done:
            self.policy.overflow(self, server)
        self.policy.settled(self, server)
        self.wake(server)

    def _idle(self) -> float:
        for server in self.servers:
            server.advance(self.now)
        return sum(server.idle for server in self.servers)
