"""Servers without a network: what a fleet sees of SGLang, and every way to fail."""

import asyncio

import numpy as np

from agentic_jax.rollout.engine import Completion, ServerLoad
from agentic_jax.rollout.fleet import Fleet
from agentic_jax.rollout.membership import PROBE
from agentic_jax.rollout.sglang import ServerError


def token_at(seed, position):
    """What every server samples for a seed at a position of the sequence."""
    return (seed * 7 + position * 13) % 50 + 1


def expected(seed, start, count):
    return [token_at(seed, position) for position in range(start, start + count)]


class FakeServer:
    """Samples by seed and position; `plan` says what its next answers are instead.

    Plan entries: "error", "die", "hang", "old" (weights), "abort" (by somebody).
    """

    def __init__(self, name="a", *, capacity=1_000, version=None):
        self.url = f"http://{name}"
        self.capacity, self.version = capacity, version
        self.plan = []
        self.alive = self.updates = True
        self.requests = []  # (session, prompt tokens, max_tokens) of each.
        self.running = {}  # Request -> (session, tokens).
        self.others = self.most = 0
        self.ended = asyncio.Event()  # This life of the process has.
        self.gate = asyncio.Event()
        self.gate.set()
        self.update_gate = asyncio.Event()
        self.update_gate.set()
        self.updating = asyncio.Event()
        self.paths, self.released, self.aborted = [], [], set()
        self.closed = False

    async def generate(self, token_ids, params, *, session):
        self._check()
        if session != PROBE:
            self.requests.append((session, len(token_ids), params.max_tokens))
        key, life = object(), self.ended
        self.running[key] = session, len(token_ids) + params.max_tokens
        self.most = max(self.most, self._used())
        try:
            done = await self._answer(token_ids, params, session, life)
        finally:
            del self.running[key]
        if life.is_set():
            raise ServerError(f"{self.url}: the connection is gone")
        return done

    async def _answer(self, token_ids, params, session, life):
        await asyncio.sleep(0)
        await self.gate.wait()
        self._check()
        how = self.plan.pop(0) if self.plan else "well"
        if how == "die":
            self.alive = False
            life.set()
        if how in ("die", "error"):
            raise ServerError(f"{self.url}: {how}")
        if how == "hang":
            self.alive = None
            await life.wait()
        start = len(token_ids)
        ids, stop = [], "length"
        for position in range(start, start + params.max_tokens):
            ids.append(token_at(params.seed, position))
            if ids[-1] in params.stop_token_ids:
                stop = "stop"
                break
        if how == "abort" or session in self.aborted:
            ids, stop = ids[: len(ids) // 2], "abort"
        version = (self.version or 0) - (how == "old")
        logprobs = -np.array(ids, np.float32)
        return Completion(np.array(ids, np.int32), logprobs, stop, version)

    async def release(self, session):
        self.released.append(session)
        if session in {running for running, _ in self.running.values()}:
            self.aborted.add(session)

    async def load(self):
        self._check()
        used = self._used() + self.others
        return ServerLoad(len(self.running), 0, used, self.capacity)

    async def weight_version(self):
        self._check()
        return self.version

    async def healthy(self):
        return self.alive is True

    async def update_from_disk(self, path, version):
        self._check()
        self.updating.set()
        await self.update_gate.wait()
        if not self.updates:
            raise ServerError(f"{self.url}: no space left")
        self.paths.append(path)
        self.version = version

    async def close(self):
        self.closed = True

    def restart(self, version=None):
        self.ended.set()
        self.ended = asyncio.Event()
        self.alive, self.version = True, version

    def _used(self):
        return sum(tokens for _, tokens in self.running.values())

    def _check(self):
        if not self.alive:
            raise ServerError(f"{self.url}: connection refused")


def publish(params, version):
    return f"/weights/{params}-{version}"


def make_fleet(servers, **options):
    options = {
        "publish": publish,
        "length": 200,
        "slice_tokens": 8,
        "check_s": 0.005,
        "wait_s": 5.0,
    } | options
    return Fleet(servers, **options)


def play(main, servers, **options):
    """Runs main(fleet) on weights 1, then closes the fleet."""

    async def run():
        fleet = make_fleet(servers, **options)
        try:
            await fleet.update_weights("w", 1)
            return await main(fleet)
        finally:
            await fleet.close()

    return asyncio.run(asyncio.wait_for(run(), 20))
