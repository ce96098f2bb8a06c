"""Serves a passage index over HTTP in Search-R1's format."""

import asyncio
from typing import Any

from aiohttp import web

from agentic_jax.tools.passages import PassageIndex

_MOST_QUERIES = 1_024  # Of one request.


async def serve(index: PassageIndex, *, host: str, port: int, k: int) -> web.AppRunner:
    """A running server; its `cleanup` stops it, `addresses` say where it listens.

    POST /retrieve takes {"queries": [...], "topk": n, "return_scores": bool} and
    answers {"result": [...]}, for each query its hits: {"document": {"id", "title",
    "text", "contents"}, "score"}, or the documents alone if no scores are wanted.
    GET /health answers {"passages": n}. A request that is malformed gets 400.

    Args:
        index: what is searched.
        host: address to listen on.
        port: 0 takes a free one.
        k: hits of a request that does not say.
    """

    async def retrieve(request: web.Request) -> web.Response:
        try:
            body = await request.json()
            queries, topk = body["queries"], body.get("topk", k)
            if not isinstance(topk, int) or topk < 1:
                raise ValueError(f"topk is {topk!r}; a positive whole number is wanted")
            if len(queries) > _MOST_QUERIES or not all(
                isinstance(query, str) for query in queries
            ):
                raise ValueError(f"queries are a list of at most {_MOST_QUERIES} texts")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return web.json_response({"error": f"bad request: {error}"}, status=400)
        scored = bool(body.get("return_scores", False))
        result = await asyncio.to_thread(
            lambda: [_hits(index, query, topk, scored) for query in queries]
        )
        return web.json_response({"result": result})

    async def health(request: web.Request) -> web.Response:
        return web.json_response({"passages": len(index)})

    app = web.Application()
    app.add_routes([web.post("/retrieve", retrieve), web.get("/health", health)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner


def _hits(
    index: PassageIndex, query: str, k: int, scored: bool
) -> list[dict[str, Any]]:
    """The answer to one query."""
    hits = []
    for passage in index.search(query, k=k):
        document = {
            "id": passage.id,
            "title": passage.title,
            "text": passage.text,
            "contents": f'"{passage.title}"\n{passage.text}',
        }
        hit = {"document": document, "score": passage.score}
        hits.append(hit if scored else document)
    return hits
