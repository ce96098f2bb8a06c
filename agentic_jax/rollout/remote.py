"""The engine of a run whose servers are elsewhere: opened from a config."""

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from agentic_jax.models.publish import publish
from agentic_jax.rollout.engine import Completion, SamplingParams, ServerLoad
from agentic_jax.rollout.fleet import Fleet
from agentic_jax.rollout.sglang import ServerError, SGLangServer


def open_fleet(
    params: Any,
    model: Any,
    chat: Any,
    *,
    urls: Sequence[str],
    router: str = "",
    directory: str,
    dtype: str,
    length: int,
    timeout_s: float,
    slice_tokens: int = 512,
    max_attempts: int = 3,
    wait_s: float = 600.0,
    check_s: float = 5.0,
) -> Fleet:
    """A Fleet over servers that speak SGLang's HTTP API.

    Args:
        params: first weights; published if nothing else is before the first request.
        model: a sources.Model, for the config and the tokenizer of what is published.
        chat: its decode finds stop strings.
        urls: of all servers; of the workers, where there is a router.
        router: url of an sglang-router: it then chooses the server of each request.
        directory: where weights are published; every server must see it by this name.
        dtype: of the published weights, the servers' own.
        length: most tokens of a trajectory; at most the servers' context length.
        timeout_s: seconds that one request (a slice) or one update may take.
        slice_tokens: see Fleet.
        max_attempts: see Fleet.
        wait_s: see Fleet.
        check_s: see Fleet.

    Raises:
        ValueError: no urls, or a number out of range.
    """
    servers = [SGLangServer(url, timeout_s=timeout_s) for url in urls]
    if router and servers:
        servers = [Router(SGLangServer(router, timeout_s=timeout_s), servers)]

    def publish_version(params: Any, version: int) -> os.PathLike:
        return publish(
            params,
            model.config,
            directory,
            version=version,
            dtype=dtype,
            tokenizer=model.tokenizer,
        )

    return Fleet(
        servers,
        publish=publish_version,
        decode=chat.decode,
        length=length,
        slice_tokens=slice_tokens,
        max_attempts=max_attempts,
        wait_s=wait_s,
        check_s=check_s,
        params=params,
    )


class Router:
    """An sglang-router and its workers, as one server of a fleet.

    The router places requests and repeats those of a worker that dies, but knows
    nothing of weights, so these go to each worker. A dead worker does not hold up the
    others; when the router lets it back in with old weights, the fleet refuses its
    answers and has all workers load the current ones. The router cannot abort: what
    nobody waits for any more runs to its end.

    Args:
        router: client of the router.
        workers: clients of all its workers.
    """

    def __init__(self, router: SGLangServer, workers: Sequence[SGLangServer]):
        self.url = router.url
        self._router, self._workers = router, list(workers)

    async def generate(
        self, token_ids: Sequence[int], params: SamplingParams, *, session: str
    ) -> Completion:
        """As SGLangServer.generate, on a worker of the router's choice."""
        return await self._router.generate(token_ids, params, session=session)

    async def release(self, session: str) -> None:
        """Nothing: workers free their caches by need."""

    async def load(self) -> ServerLoad:
        """The sum over healthy workers.

        Raises:
            ServerError: there is none.
        """
        loads = await asyncio.gather(*(w.load() for w in await self._healthy()))
        return ServerLoad(
            running=sum(load.running for load in loads),
            waiting=sum(load.waiting for load in loads),
            used_tokens=sum(load.used_tokens for load in loads),
            capacity_tokens=sum(load.capacity_tokens for load in loads),
        )

    async def weight_version(self) -> int | None:
        """That of all healthy workers; None if they differ.

        Raises:
            ServerError: there is none.
        """
        workers = await self._healthy()
        versions = set(await asyncio.gather(*(w.weight_version() for w in workers)))
        return versions.pop() if len(versions) == 1 else None

    async def healthy(self) -> bool:
        """Whether the router and a worker are."""
        states = await asyncio.gather(
            *(server.healthy() for server in (self._router, *self._workers))
        )
        return states[0] and any(states[1:])

    async def update_from_disk(self, path: str | os.PathLike, version: int) -> None:
        """Has every healthy worker load the weights, at once.

        Raises:
            ServerError: one of them did not, or there is none.
        """
        workers = await self._healthy()
        await asyncio.gather(*(w.update_from_disk(path, version) for w in workers))

    async def close(self) -> None:
        """Closes all clients."""
        await asyncio.gather(*(s.close() for s in (self._router, *self._workers)))

    async def _healthy(self) -> list[SGLangServer]:
        states = await asyncio.gather(*(w.healthy() for w in self._workers))
        workers = [w for w, well in zip(self._workers, states, strict=True) if well]
        if not workers:
            raise ServerError(f"no worker of the router {self.url} is healthy")
        return workers
