"""What placing rollouts by free cache is worth: a simulation of a fleet of servers.

    python -m benchmarks.scheduler                     # four scenarios, 5 seeds each
    python -m benchmarks.scheduler --servers=64 --rollouts=45000

Compares on the same rollouts:
- static: every server gets an equal share of the prompts, all at the start;
- round_robin: every request goes to the next server, where its prefix is not cached;
- reserved: static, and no more rollouts at once than could all reach their limit;
- ours: agentic_jax/rollout/scheduler.py, the very code that the fleet runs, with
  slices of 256 or 512 tokens.

A server is one MI300X with Qwen3-14B in bfloat16, as in rStar2 (arXiv:2508.20722), from
published figures: 14.8e9 parameters; 40 layers x 8 key heads x 128 x 2 x 2 bytes =
163,840 bytes of cache a token, so 820,000 tokens in 134 of its 192 GB. A decoding step
reads the weights and the live cache at 60% of 5.3 TB/s and takes 2 ms besides: 11 ms
when empty, 54 ms when full. A prefill computes at 40% of 1,307 TFLOP/s, reads the
weights, and holds up decoding; what arrives during one step shares one. Each
slice of ours costs a prefill of one token. Under static and round_robin the server
admits in order of arrival, as SGLang 0.5 does: it sets aside a share (0.7 sinking to
0.098) of what the running requests may still sample, counting 4,096 of each at most,
and when the cache is full evicts the requests that have sampled least. What does not
run stays cached until the room is needed, the oldest going first.

Rollouts come 16 to a prompt. Lengths (sampled and tool tokens) are log-normal with
sigma 0.8, mean 4,096, cut at 16,384; half of the variance is the prompt's. There are
3 turns on average and 16 at most; a tool takes 0.3 s on average (one in 50: 10 s) and
adds 150 tokens. Our expectation of the growth starts cold.

Idle is all cache that no running request holds: what belongs to a rollout whose tool
runs, or that waits for room, counts as idle. `idle` is taken until the last time that
a request had to wait anywhere, in a server's own queue or in ours: while there is work
to give; `idle_to_end` until all have ended, the drain of the longest included.
A decision is a request granted to a server; `us_per_decision` is the CPU time of all
of the scheduler's work per decision. Prints medians over seeds, then one JSON line.
"""

import json
import statistics
import time
from collections.abc import Callable

from absl import app, flags

from agentic_jax.rollout.scheduler import Grant, Ledger
from benchmarks.simulated_fleet import (
    CAPACITY,
    LENGTH,
    Rollout,
    Server,
    Simulation,
    draw_rollouts,
)

SCENARIOS = ((8, 1_024), (8, 8_192), (16, 45_000), (64, 45_000))
_SERVERS = flags.DEFINE_integer("servers", None, "Only this scenario.")
_ROLLOUTS = flags.DEFINE_integer("rollouts", None, "Only this scenario.")
_SEEDS = flags.DEFINE_integer("seeds", 5, "Draws of the rollouts.", 1)
_POLICIES = flags.DEFINE_list("policies", None, "Only these.")
_MOST_ESTIMATED = 4_096


class Static:
    """Servers queue for themselves; what they are sent is fixed at the start."""

    def start(self, sim: Simulation) -> None:
        """Sends every server its share of the prompts."""
        share = -(-len(sim.rollouts) // len(sim.servers))
        for i, rollout in enumerate(sim.rollouts):
            sim.wait(rollout)
            sim.servers[i // share].waiting.append(rollout)
        for server in sim.servers:
            self.settled(sim, server)

    def turn(self, sim: Simulation, rollout: Rollout) -> None:
        """Sends the next request."""
        sim.wait(rollout)
        server = self.next_server(sim, rollout)
        server.waiting.append(rollout)
        self.settled(sim, server)

    def next_server(self, sim: Simulation, rollout: Rollout) -> Server:
        """Where a rollout's next request goes."""
        return sim.servers[rollout.server]

    def request_ended(self, sim: Simulation, rollout: Rollout, server: Server) -> None:
        """Leaves what it has in the server's cache."""
        if not rollout.ended:
            server.cached[rollout] = rollout.context

    def overflow(self, sim: Simulation, server: Server) -> None:
        """Evicts until 20 more steps fit, and sets more aside from now on."""

        def sampled(rollout: Rollout) -> float:
            return server.steps - server.running[rollout][0]

        victims = sorted(server.running, key=sampled, reverse=True)
        while server.live + 20 * len(server.running) > CAPACITY:
            rollout = victims.pop()
            server.stop(rollout)
            sim.wait(rollout)
            server.waiting.appendleft(rollout)
            sim.evictions += 1
        decoded = sum(sampled(rollout) + 20 for rollout in server.running)
        most = sum(r.limit - r.context for r in server.running)
        server.ratio = min(1.0, decoded / max(most, 1))

    def settled(self, sim: Simulation, server: Server) -> None:
        """Lets the server admit from its queue and forget what does not fit."""
        server.advance(sim.now)
        while server.waiting and self.fits(server, server.waiting[0]):
            rollout = server.waiting.popleft()
            cached = min(server.cached.pop(rollout, 0), rollout.context - 1)
            uncached = rollout.context - cached
            sim.recomputed += self.again(rollout, uncached)
            sim.begin(rollout, server, rollout.left, uncached=uncached)
        room = CAPACITY - server.live - sum(server.cached.values())
        while room < 0 and server.cached:
            room += server.cached.popitem(last=False)[1]

    def again(self, rollout: Rollout, uncached: int) -> int:
        """How many of the tokens to prefill had been computed before."""
        if rollout.server < 0:
            return 0
        new = 0 if rollout.sampled or not rollout.turn else 150
        return max(uncached - new - 1, 0)

    def fits(self, server: Server, rollout: Rollout) -> bool:
        """SGLang's rule of admission."""

        def estimate(tokens: float) -> float:
            return min(tokens, _MOST_ESTIMATED)

        need = rollout.context + estimate(rollout.limit - rollout.context)
        room = CAPACITY - server.live - need
        if room <= 0:
            return False
        ahead = sum(
            estimate(r.limit - r.context - server.steps + began)
            for r, (began, _) in server.running.items()
        )
        return room > server.ratio * ahead


class RoundRobin(Static):
    """Every request goes to the next server."""

    def start(self, sim: Simulation) -> None:
        """Deals the rollouts out."""
        self.dealt = 0
        for rollout in sim.rollouts:
            sim.wait(rollout)
            self.next_server(sim, rollout).waiting.append(rollout)
        for server in sim.servers:
            self.settled(sim, server)

    def next_server(self, sim: Simulation, rollout: Rollout) -> Server:
        """The next in turn."""
        self.dealt += 1
        return sim.servers[self.dealt % len(sim.servers)]

    def request_ended(self, sim: Simulation, rollout: Rollout, server: Server) -> None:
        """What it leaves is of no use where it goes."""


class Reserved(Static):
    """No more rollouts at once than could all reach their limit."""

    def start(self, sim: Simulation) -> None:
        """Sends shares, as static does."""
        self.inside: dict[Server, set[Rollout]] = {s: set() for s in sim.servers}
        super().start(sim)

    def turn(self, sim: Simulation, rollout: Rollout) -> None:
        """Goes on at once: its room is kept."""
        sim.wait(rollout)
        sim.servers[rollout.server].waiting.appendleft(rollout)
        self.settled(sim, sim.servers[rollout.server])

    def request_ended(self, sim: Simulation, rollout: Rollout, server: Server) -> None:
        """Gives its place away only at the end."""
        super().request_ended(sim, rollout, server)
        if rollout.ended:
            self.inside[server].discard(rollout)

    def fits(self, server: Server, rollout: Rollout) -> bool:
        """Whether it is inside, or may come in."""
        inside = self.inside[server]
        if rollout not in inside and (len(inside) + 1) * LENGTH > CAPACITY:
            return False
        inside.add(rollout)
        return True


class Ours:
    """The fleet's ledger decides; servers never queue.

    Args:
        slice_tokens: most tokens of one request.
    """

    def __init__(self, slice_tokens: int):
        self.slice = slice_tokens

    def start(self, sim: Simulation) -> None:
        """All rollouts ask at once."""
        self.seconds = 0.0
        self.ledger = Ledger(len(sim.servers), length=LENGTH)
        for server in sim.servers:
            self.ledger.open_server(server.index, CAPACITY)
        self.by_name = {rollout.name: rollout for rollout in sim.rollouts}
        for rollout in sim.rollouts:
            self.turn(sim, rollout)

    def turn(self, sim: Simulation, rollout: Rollout) -> None:
        """Asks for room for one request."""
        sim.wait(rollout)
        context = rollout.context
        tokens = min(context + self.slice, rollout.limit)
        name = rollout.name
        self.change(
            sim, lambda: self.ledger.ask(name, context_tokens=context, tokens=tokens)
        )

    def request_ended(self, sim: Simulation, rollout: Rollout, server: Server) -> None:
        """Settles, then asks for the next slice or ends."""
        self.change(sim, lambda: self.ledger.settle(rollout.name, rollout.context))
        if rollout.ended:
            self.change(sim, lambda: self.ledger.end(rollout.name))
        elif rollout.left:
            self.turn(sim, rollout)

    def change(self, sim: Simulation, change: Callable[[], list[Grant]]) -> None:
        """Times one change of the ledger and starts what it grants."""
        began = time.thread_time()
        grants = change()
        self.seconds += time.thread_time() - began
        for name, index in grants:
            rollout = self.by_name[name]
            tokens = min(self.slice, rollout.limit - rollout.context)
            new = rollout.context if rollout.server < 0 else 1
            if rollout.turn and not rollout.sampled:
                new = 151
            sim.begin(rollout, sim.servers[index], tokens, uncached=new)

    def overflow(self, sim: Simulation, server: Server) -> None:
        """Cannot happen."""
        if server.live > CAPACITY:
            raise RuntimeError("a server was overcommitted")

    def settled(self, sim: Simulation, server: Server) -> None:
        """Nothing: every change has been acted on."""


POLICIES = {
    "static": Static,
    "round_robin": RoundRobin,
    "reserved": Reserved,
    "ours_256": lambda: Ours(256),
    "ours_512": lambda: Ours(512),
}


def measure(servers: int, rollouts: int, policy: str, *, seeds: int) -> dict:
    """Medians over seeds of what a policy gives in a scenario."""
    runs = []
    for seed in range(seeds):
        made = POLICIES[policy]()
        sim = Simulation(draw_rollouts(rollouts, seed=seed), servers, made)
        runs.append(sim.run())
        if isinstance(made, Ours):
            runs[-1]["us_per_decision"] = 1e6 * made.seconds / sim.requests
    return {
        key: round(statistics.median(run[key] for run in runs), 4) for key in runs[0]
    }


def main(argv):
    """Runs the scenarios."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    scenarios = SCENARIOS
    if _SERVERS.value or _ROLLOUTS.value:
        scenarios = ((_SERVERS.value or 8, _ROLLOUTS.value or 1_024),)
    results = []
    for servers, rollouts in scenarios:
        for policy in _POLICIES.value or POLICIES:
            row = measure(servers, rollouts, policy, seeds=_SEEDS.value)
            head = {"servers": servers, "rollouts": rollouts, "policy": policy}
            results.append(head | row)
            print(" ".join(f"{key}={value}" for key, value in results[-1].items()))
    print(json.dumps({"seeds": _SEEDS.value, "results": results}))


if __name__ == "__main__":
    app.run(main)
