import asyncio
import contextlib
import json
import pathlib

import pytest
from aiohttp import web

from agentic_jax.data.layouts import read_dataset
from agentic_jax.tools import retriever
from agentic_jax.tools.base import call_tool
from agentic_jax.tools.passages import (
    Passage,
    PassageIndex,
    passage_of,
    read_passages,
)
from agentic_jax.tools.search import (
    SearchError,
    passage_search_tool,
    passages_text,
    retriever_tool,
    web_search_tool,
)
from agentic_jax.trajectory import ToolCall
from benchmarks.retrieval import recall

SHARED = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"
PASSAGES = [
    Passage("0", "Paris", "Paris is the capital of France."),
    Passage("1", "Rome", "Rome is the capital of Italy."),
    Passage("2", "Loire", "The Loire is a river of France, south of Paris."),
    Passage("3", "Rome", "Rome is the capital of Italy."),
]
OPTIONS = {"k": 2, "max_chars": 200, "timeout": 20.0}


@pytest.fixture(scope="module")
def index():
    return PassageIndex(PASSAGES)


@contextlib.asynccontextmanager
async def served(*routes):
    """Base URL of a local server with these routes."""
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield "http://{}:{}".format(*runner.addresses[0][:2])
    finally:
        await runner.cleanup()


async def ask(tool, query="capital of Italy"):
    return await call_tool(ToolCall("search", {"query": query}), {"search": tool})


def test_the_best_passages_come_first_and_ties_in_file_order(index):
    found = index.search("What is the capital of Italy?", k=3)
    assert [passage.id for passage in found] == ["1", "3", "0"]
    assert found[0].score == found[1].score > found[2].score > 0
    assert [p.id for p in index.search("capital italy", k=1)] == ["1"]
    assert [p.id for p in index.search("river", k=9)] == ["2"]


def test_passages_without_words_are_refused():
    with pytest.raises(ValueError, match="none of 2 passages has a word"):
        PassageIndex([Passage("0", "a", "?"), Passage("1", "", "of the")])


@pytest.mark.parametrize("query", ["", "the of a", "zzz qqq", "?!", "\u2028"])
def test_a_query_without_known_words_finds_nothing(index, query):
    assert index.search(query, k=3) == []


def test_both_forms_of_passage_files_are_read(tmp_path):
    path = tmp_path / "p.jsonl"
    plain = {"id": 7, "title": "T", "text": "x\u2028y"}
    search_r1 = {"id": "8", "contents": '"T"\nx\ny'}
    path.write_text(f"{json.dumps(plain, ensure_ascii=False)}\n{json.dumps(search_r1)}")
    assert read_passages(path) == [
        Passage("7", "T", "x\u2028y"),
        Passage("8", "T", "x\ny"),
    ]
    path.write_text('{"text": "a"}\n{"title": "b"}')
    with pytest.raises(ValueError, match="p.jsonl, line 2: no passage: .*contents"):
        read_passages(path)
    path.write_text("\n")
    with pytest.raises(ValueError, match="holds no passage"):
        read_passages(path)


def test_each_passage_gets_its_share_of_the_answer():
    text = passages_text(PASSAGES[:2], max_chars=60)
    assert text.split("\n") == [
        "Doc 1 (Title: Paris) Paris...",
        "Doc 2 (Title: Rome) Rome i...",
    ]
    assert len(text) < 60
    assert passages_text([], max_chars=60) == "Nothing found."
    lines = passages_text([Passage("", "a\nDoc 9", "b\n\nc")], max_chars=60)
    assert lines == "Doc 1 (Title: a Doc 9) b c"


def test_a_local_index_is_a_tool(tmp_path):
    path = tmp_path / "p.jsonl"
    rows = [{"id": p.id, "title": p.title, "text": p.text} for p in PASSAGES]
    path.write_text("\n".join(map(json.dumps, rows)))
    tool = passage_search_tool(path=str(path), **OPTIONS)
    assert tool.description == "Searches 4 passages and returns the best 2."
    done = asyncio.run(ask(tool))
    assert done.text.startswith(
        "Doc 1 (Title: Rome) Rome is the capital of Italy.\nDoc"
    )
    assert done.status == "ok"
    nothing = asyncio.run(ask(tool, "zzz"))
    assert (nothing.text, nothing.status) == ("Nothing found.", "ok")
    assert asyncio.run(ask(tool, " ")).status == "error"


def test_the_retriever_answers_in_search_r1s_format(index):
    async def talk():
        runner = await retriever.serve(index, host="127.0.0.1", port=0, k=1)
        try:
            url = "http://{}:{}".format(*runner.addresses[0][:2])
            tool = retriever_tool(url=f"{url}/retrieve", **OPTIONS)
            answers = [await ask(tool), await ask(tool, "zzz")]
            async with retriever_client(url) as post:
                scored = await post({"queries": ["river"], "return_scores": True})
                plain = await post({"queries": ["river", "zzz"], "topk": 3})
                bad = [
                    await post(body)
                    for body in ({}, [], {"queries": [1]}, {"queries": [], "topk": 0})
                ]
            return answers, scored, plain, bad
        finally:
            await runner.cleanup()

    (found, nothing), scored, plain, bad = asyncio.run(talk())
    assert found.text.startswith("Doc 1 (Title: Rome) Rome is the capital of Italy.")
    assert (found.text.count("Doc "), found.status) == (2, "ok")
    assert nothing.text == "Nothing found."
    (hit,) = scored[1]["result"][0]
    assert hit["score"] > 0
    assert hit["document"]["contents"] == f'"Loire"\n{PASSAGES[2].text}'
    assert passage_of(hit["document"], hit["score"]).id == "2"
    assert [[d["id"] for d in hits] for hits in plain[1]["result"]] == [["2"], []]
    assert [status for status, _ in bad] == [400] * 4


@contextlib.asynccontextmanager
async def retriever_client(url):
    import aiohttp

    async with aiohttp.ClientSession() as http:

        async def post(body):
            async with http.post(f"{url}/retrieve", json=body) as answer:
                return answer.status, await answer.json()

        yield post


def test_a_web_search_service_is_asked_as_bing_is(monkeypatch):
    monkeypatch.setenv("TEST_SEARCH_KEY", "k-123")
    seen = []

    async def search(request):
        seen.append((dict(request.query), request.headers["Ocp-Apim-Subscription-Key"]))
        if request.query["q"] == "nothing":
            return web.json_response({"_type": "SearchResponse"})
        page = {"name": "Rome", "url": "https://r", "snippet": "The capital."}
        return web.json_response({"webPages": {"value": [page] * 3}})

    async def talk():
        async with served(web.get("/v7.0/search", search)) as url:
            tool = web_search_tool(
                url=f"{url}/v7.0/search", key_variable="TEST_SEARCH_KEY", **OPTIONS
            )
            return await ask(tool, "Italy & more?"), await ask(tool, "nothing")

    found, nothing = asyncio.run(talk())
    assert found.text == (
        "Doc 1 (Title: Rome) https://r The capital.\n"
        "Doc 2 (Title: Rome) https://r The capital."
    )
    assert (nothing.text, nothing.status) == ("Nothing found.", "ok")
    assert seen[0] == ({"q": "Italy & more?", "count": "2"}, "k-123")
    monkeypatch.delenv("TEST_SEARCH_KEY")
    with pytest.raises(ValueError, match="environment has no TEST_SEARCH_KEY"):
        web_search_tool(url="http://x", key_variable="TEST_SEARCH_KEY", **OPTIONS)


def test_a_failing_service_is_a_fault_and_a_busy_one_is_told():
    answers = {
        "/busy": lambda: web.Response(status=429),
        "/broken": lambda: web.Response(status=500, text="disk full"),
        "/text": lambda: web.Response(text="hello"),
        "/other": lambda: web.json_response({"results": []}),
    }

    async def talk():
        async def answer(request):
            return answers[request.path]()

        async with served(*(web.post(path, answer) for path in answers)) as url:
            statuses = [
                (await ask(retriever_tool(url=f"{url}/busy", **OPTIONS))).status
            ]
            for path in ("/broken", "/text", "/other"):
                with pytest.raises(SearchError, match="answered") as raised:
                    await ask(retriever_tool(url=url + path, **OPTIONS))
                statuses.append(str(raised.value))
        with pytest.raises(SearchError, match="cannot be reached"):
            await ask(retriever_tool(url=url, **OPTIONS))  # Nobody listens there now.
        return statuses

    busy, broken, text, other = asyncio.run(talk())
    assert busy == "busy"
    assert broken.endswith("/broken answered 500: disk full")
    assert "/text answered no JSON" in text
    assert "/other answered in another form: KeyError('result')" in other


def test_a_late_service_is_a_fault():
    async def never(request):
        await asyncio.Event().wait()

    async def talk():
        async with served(web.post("/", never)) as url:
            options = OPTIONS | {"timeout": 0.05}
            with pytest.raises(TimeoutError):
                await ask(retriever_tool(url=url, **options))

    asyncio.run(talk())


@pytest.mark.skipif(not SHARED.exists(), reason="no data beside the repository")
def test_retrieval_finds_the_supporting_titles_of_real_questions():
    index = PassageIndex(read_passages(SHARED / "wiki_passages.jsonl"))
    tasks = read_dataset("hotpotqa", path=SHARED / "hotpotqa_distractor100.jsonl")
    questions = [
        (task.messages[0]["content"], task.extra["supporting_titles"]) for task in tasks
    ]
    found = {k: recall(index, questions, k=k) for k in (3, 5, 10)}
    # Another BM25, on the same files: 0.61, 0.74, 0.88.
    assert found == pytest.approx({3: 0.61, 5: 0.74, 10: 0.88}, abs=0.02)
