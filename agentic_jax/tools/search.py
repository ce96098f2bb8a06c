"""Search tools: a local index, a retriever over HTTP, and a web-search service."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiohttp
from absl import logging

from agentic_jax.sandbox.capture import cut_middle
from agentic_jax.tools.base import Tool
from agentic_jax.tools.passages import (
    Passage,
    PassageIndex,
    passage_of,
    read_passages,
)
from agentic_jax.trajectory import ToolResult

_PARAMETERS = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What to look for."}},
    "required": ["query"],
}
Find = Callable[[str], Awaitable[Sequence[Passage]]]


class SearchError(OSError):
    """The search service failed: a fault of ours, not the policy's."""


class SearchBusy(SearchError):
    """The service asks for fewer requests."""


def passage_search_tool(*, path: str, k: int, max_chars: int, timeout: float) -> Tool:
    """BM25 over a passage file, in this process.

    Args:
        path: see passages.read_passages; it is read and indexed here.
        k: passages of one answer.
        max_chars: of one answer, shared evenly by its passages.
        timeout: seconds of a call after which the index counts as stuck.

    Returns:
        A tool named "search" with one parameter, `query`. Nothing found is an answer,
        with status "ok".

    Raises:
        FileNotFoundError, ValueError: as read_passages.
    """
    index = PassageIndex(read_passages(path))
    return index_tool(index, k=k, max_chars=max_chars, timeout=timeout)


def index_tool(index: PassageIndex, *, k: int, max_chars: int, timeout: float) -> Tool:
    """passage_search_tool over an index that is there already; options as there."""

    async def find(query: str) -> Sequence[Passage]:
        return await asyncio.to_thread(index.search, query, k=k)

    about = f"Searches {len(index):,} passages and returns the best {k}."
    return _search_tool(find, about, max_chars=max_chars, timeout=timeout)


def retriever_tool(*, url: str, k: int, max_chars: int, timeout: float) -> Tool:
    """A retriever that speaks Search-R1's format, such as launch.serve_search.

    It is sent {"queries": [query], "topk": k, "return_scores": true} and answers
    {"result": [[{"document": {"contents": ...}, "score": ...}, ...]]}.

    Args:
        url: such as "http://127.0.0.1:8000/retrieve".
        k, max_chars, timeout: as for passage_search_tool.

    Returns:
        A tool named "search". A service that refuses, fails or is late is a fault and
        raises SearchError or TimeoutError; status "busy" is its answer 429.

    Source: Search-R1 (arXiv:2503.09516).
    """

    async def find(query: str) -> Sequence[Passage]:
        body = {"queries": [query], "topk": k, "return_scores": True}
        answer = await _request("POST", url, json=body)
        try:
            return [
                passage_of(hit["document"], float(hit.get("score", 0.0)))
                for hit in answer["result"][0]
            ]
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            raise SearchError(f"{url} answered in another form: {error!r}") from error

    about = f"Searches a collection of passages and returns the best {k}."
    return _search_tool(find, about, max_chars=max_chars, timeout=timeout)


def web_search_tool(
    *, url: str, key_variable: str, k: int, max_chars: int, timeout: float
) -> Tool:
    """A web-search service of the shape of Bing's Web Search API, version 7.

    Args:
        url: such as "https://api.bing.microsoft.com/v7.0/search".
        key_variable: of the environment, which holds the subscription key: a key in a
            config would be written to the workdir.
        k, max_chars, timeout: as for passage_search_tool.

    Returns:
        A tool named "search"; the passages are names, addresses and snippets of pages.
        Statuses and faults as for retriever_tool.

    Raises:
        ValueError: the environment has no such variable.
    """
    key = os.environ.get(key_variable)
    if not key:
        raise ValueError(f"the environment has no {key_variable}; put the key there")

    async def find(query: str) -> Sequence[Passage]:
        answer = await _request(
            "GET",
            url,
            params={"q": query, "count": str(k)},
            headers={"Ocp-Apim-Subscription-Key": key},
        )
        try:
            pages = answer.get("webPages", {}).get("value", [])[:k]
            return [
                Passage(page["url"], page["name"], f"{page['url']} {page['snippet']}")
                for page in pages
            ]
        except (KeyError, TypeError, AttributeError) as error:
            raise SearchError(f"{url} answered in another form: {error!r}") from error

    about = f"Searches the web and returns the best {k} pages."
    return _search_tool(find, about, max_chars=max_chars, timeout=timeout)


def passages_text(passages: Sequence[Passage], *, max_chars: int) -> str:
    """What the policy reads: one numbered line a passage, each cut to its share."""
    if not passages:
        return "Nothing found."
    share = max_chars // len(passages)
    lines = []
    for i, passage in enumerate(passages, start=1):
        line = " ".join(f"Doc {i} (Title: {passage.title}) {passage.text}".split())
        lines.append(line if len(line) < share else f"{line[: share - 4]}...")
    return "\n".join(lines)


def _search_tool(find: Find, about: str, *, max_chars: int, timeout: float) -> Tool:
    async def run(query: str) -> ToolResult:
        if not query.strip():
            return ToolResult("The query is empty.", "error")
        try:
            passages = await find(query)
        except SearchBusy as error:
            return ToolResult(str(error), "busy")
        text = passages_text(passages, max_chars=max_chars)
        return ToolResult(cut_middle(text, max_chars), "ok")

    return Tool("search", about, _PARAMETERS, run, timeout)


async def _request(method: str, url: str, **options: Any) -> Any:
    """The JSON that a service answers; asked a second time if it cannot be reached."""
    try:
        return await _request_once(method, url, **options)
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
        logging.warning("%s: %r; asked once more", url, error)
    try:
        return await _request_once(method, url, **options)
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
        raise SearchError(f"{url} cannot be reached: {error!r}") from error


async def _request_once(method: str, url: str, **options: Any) -> Any:
    async with (
        aiohttp.ClientSession() as http,
        http.request(method, url, **options) as answer,
    ):
        if answer.status == 429:
            raise SearchBusy(f"{url} is busy; search again later.")
        if answer.status != 200:
            text = (await answer.text())[:200]
            raise SearchError(f"{url} answered {answer.status}: {text}")
        try:
            return await answer.json(content_type=None)
        except ValueError as error:
            raise SearchError(f"{url} answered no JSON: {error}") from error
