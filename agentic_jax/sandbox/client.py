"""The two ways to a sandbox: in this process, or behind HTTP services."""

import asyncio
import contextlib
import dataclasses
import io
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import aiohttp
from absl import logging

from agentic_jax.sandbox import wire
from agentic_jax.sandbox.execution import (
    Execution,
    Limits,
    SandboxError,
    check_positive,
)
from agentic_jax.sandbox.grading import Grade, Submission
from agentic_jax.sandbox.supervisor import Sandbox

__all__ = [
    "Execution",
    "Grade",
    "Limits",
    "Sandbox",
    "SandboxClient",
    "SandboxError",
    "Submission",
]
_DOWN_SECONDS = 5.0  # A service that failed is not asked again for this long.


@dataclasses.dataclass
class _Service:
    """One service: how many calls of ours it holds, and until when it is shunned."""

    url: str
    in_flight: int = 0
    down_until: float = 0.0


class SandboxClient:
    """`Sandbox`, run by services elsewhere; the least loaded gets the next call.

    async with SandboxClient(["http://a:8080", "http://b:8080"]) as sandbox:
        done = await sandbox.execute("print(1)", timeout=5.0)

    A call on a service that cannot be reached goes once to each of the others. Code
    runs isolated and without effects, so running it again is harmless.

    Args:
        urls: of one service, or of several.
        queue_timeout: seconds that a call may wait for its turn at a service.

    Raises:
        ValueError: no url, or a queue_timeout that is not positive and finite.
    """

    def __init__(self, urls: str | Sequence[str], *, queue_timeout: float = 600.0):
        urls = [urls] if isinstance(urls, str) else list(urls)
        if not urls:
            raise ValueError("no urls; give at least one service")
        check_positive("queue_timeout", queue_timeout)
        self._services = [_Service(url.rstrip("/")) for url in urls]
        self._queue_timeout = queue_timeout
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "SandboxClient":
        """Opens the connection pool."""
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10.0),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the connection pool."""
        await self._http.close()

    async def execute(
        self,
        code: str,
        *,
        timeout: float,
        stdin: str = "",
        files: Mapping[str, bytes] | None = None,
        fetch: Sequence[str] = (),
        echo: bool = False,
        limits: Limits | None = None,
    ) -> Execution:
        """As `Sandbox.execute`; without limits those of the service hold.

        Raises:
            ValueError: as there, or an argument that the service refuses.
            SandboxError: no service could be reached, or the one asked failed.
        """
        check_positive("timeout", timeout)
        body = {
            "code": code,
            "timeout": timeout,
            "stdin": stdin,
            "files": wire.encode_files(files or {}),
            "fetch": list(fetch),
            "echo": echo,
            "limits": dataclasses.asdict(limits) if limits else {},
        }
        answer = await self._post_anywhere("/execute", body, seconds=timeout)
        return wire.decode_execution(answer)

    async def grade(self, submissions: Sequence[Submission]) -> list[Grade]:
        """As `Sandbox.grade`; each submission goes where there is room."""
        return list(await asyncio.gather(*map(self._grade, submissions)))

    @contextlib.asynccontextmanager
    async def session(
        self,
        *,
        files: Mapping[str, bytes] | None = None,
        limits: Limits | None = None,
    ) -> AsyncIterator["RemoteSession"]:
        """As `Sandbox.session`; its service is chosen when it opens."""
        service = self._choose(())
        body = {
            "files": wire.encode_files(files or {}),
            "limits": dataclasses.asdict(limits) if limits else {},
        }
        opened = await self._post(service, "/session/open", body, seconds=0.0)
        session = RemoteSession(self, service, opened["session"])
        try:
            yield session
        finally:
            with contextlib.suppress(SandboxError):  # Then it will expire.
                body = {"session": opened["session"]}
                await self._post(service, "/session/close", body, seconds=0.0)

    async def _grade(self, submission: Submission) -> Grade:
        seconds = submission.timeout * len(submission.inputs)
        body = dataclasses.asdict(submission)
        answer = await self._post_anywhere("/grade", body, seconds=seconds)
        return wire.decode_grade(answer)

    async def _post_anywhere(
        self, route: str, body: Mapping[str, Any], *, seconds: float
    ) -> dict[str, Any]:
        tried: list[_Service] = []
        while True:
            service = self._choose(tried)
            try:
                return await self._post(service, route, body, seconds=seconds)
            except _Unreachable as error:
                logging.warning("sandbox %s: %s", service.url, error)
                service.down_until = time.monotonic() + _DOWN_SECONDS
                tried.append(service)
                if len(tried) == len(self._services):
                    raise SandboxError(
                        f"no sandbox service answers: {error}"
                    ) from error

    def _choose(self, tried: Sequence[_Service]) -> _Service:
        """The least loaded service that is neither tried nor, if possible, down."""
        now = time.monotonic()
        left = [service for service in self._services if service not in tried]
        up = [service for service in left if service.down_until <= now]
        return min(up or left, key=lambda service: service.in_flight)

    async def _post(
        self, service: _Service, route: str, body: Mapping[str, Any], *, seconds: float
    ) -> dict[str, Any]:
        service.in_flight += 1
        data = io.BytesIO(json.dumps(body).encode())  # Sent without stopping the loop.
        headers = {"Content-Type": "application/json"}
        url = service.url + route
        try:
            async with asyncio.timeout(seconds + self._queue_timeout):
                async with self._http.post(url, data=data, headers=headers) as answer:
                    value = await answer.json(content_type=None)
                    status = answer.status
        except TimeoutError as error:
            raise SandboxError(f"{service.url} gave no answer in time") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _Unreachable(f"{type(error).__name__}: {error}") from error
        finally:
            service.in_flight -= 1
        if status == 400:
            raise ValueError(f"{service.url}: {value['error']}")
        if status != 200:
            raise SandboxError(f"{service.url}: {status} {value}")
        return value


class RemoteSession:
    """`Session` at a service; made by `SandboxClient.session`."""

    def __init__(self, client: SandboxClient, service: _Service, session_id: str):
        self._client, self._service, self._id = client, service, session_id

    async def execute(
        self, code: str, *, timeout: float, echo: bool = True
    ) -> Execution:
        """As `Session.execute`; the variables are lost with the service."""
        check_positive("timeout", timeout)
        body = {"session": self._id, "code": code, "timeout": timeout, "echo": echo}
        answer = await self._client._post(
            self._service, "/session/execute", body, seconds=timeout
        )
        return wire.decode_execution(answer)


class _Unreachable(SandboxError):
    """The service did not answer at all: another may."""
