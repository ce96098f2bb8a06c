import asyncio
import contextlib

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from agentic_jax.config import bind
from agentic_jax.rewards.grading import VerifierError
from agentic_jax.rewards.judge import judge_call
from agentic_jax.rewards.verifiers import VERIFIERS, Services
from tests.rewards.test_verifiers import decode, played, score


@contextlib.asynccontextmanager
async def judge_server(*replies):
    """A chat endpoint: texts, choices, or (status, body); yields url and requests."""
    seen, left = [], list(replies)

    async def answer(request):
        seen.append((await request.json(), dict(request.headers)))
        reply = left.pop(0)
        if isinstance(reply, str):
            reply = {"message": {"content": reply}, "finish_reason": "stop"}
        if isinstance(reply, dict):
            return web.json_response({"choices": [reply]})
        return web.Response(status=reply[0], text=reply[1])

    app = web.Application()
    app.add_routes([web.post("/v1/chat/completions", answer)])
    async with TestServer(app, host="127.0.0.1") as server:
        yield f"http://127.0.0.1:{server.port}", seen


def judged(trajectory, *replies, **options):
    """The score, or the VerifierError; and the requests that the judge got."""

    async def run():
        async with judge_server(*replies) as (url, seen):
            verify = bind_judge(url=url, **options)
            try:
                return await verify(trajectory, Services(decode=decode)), seen
            except VerifierError as error:
                return error, seen

    return asyncio.run(run())


def bind_judge(**options):
    return bind({"name": "judge", "model": "j", **options}, VERIFIERS)


ASKED = played(("so <answer>The City of Paris</answer>", ""), answer="Paris, France")


def test_the_last_verdict_counts():
    assert judged(ASKED, "It is.\nVerdict: correct")[0] == 1.0
    assert judged(ASKED, "Other city.\n**Verdict:** Incorrect.")[0] == 0.0
    both = "Verdict: correct\nNo, I take that back.\n\nVerdict: incorrect"
    assert judged(ASKED, both)[0] == 0.0


def test_what_a_judge_repeats_of_its_prompt_is_no_verdict():
    _, seen = judged(ASKED, "Verdict: correct")
    prompt = seen[0][0]["messages"][0]["content"]
    assert isinstance(judged(ASKED, prompt)[0], VerifierError)
    assert judged(ASKED, prompt + "\nIt is.\nVerdict: correct")[0] == 1.0


def test_a_reply_that_was_cut_off_is_a_fault():
    cut = {"message": {"content": "Verdict: incorrect"}, "finish_reason": "length"}
    done, _ = judged(ASKED, cut, max_tokens=7)
    assert isinstance(done, VerifierError) and "cut off at 7 tokens" in str(done)


def test_the_judge_sees_answer_and_references_and_samples_greedily():
    several = played(("<answer>{x}</answer>", "TOOL"), answer="", answers=["A1", "B2"])
    _, seen = judged(several, "Verdict: incorrect", max_tokens=7)
    body = seen[0][0]
    prompt = body["messages"][0]["content"]
    assert "A1 or B2" in prompt and "{x}" in prompt and "TOOL" not in prompt
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("j", 0.0, 7)
    assert "Authorization" not in seen[0][1]


def test_a_key_of_the_environment_is_sent(monkeypatch):
    monkeypatch.setenv("JUDGE_API_KEY", "secret")
    _, seen = judged(ASKED, "Verdict: correct")
    assert seen[0][1]["Authorization"] == "Bearer secret"


def test_equal_and_missing_answers_ask_nobody():
    equal = played(("<answer>the paris</answer>", ""), answer="Paris")
    assert judged(equal) == (1.0, [])
    assert judged(played(("no tag", ""))) == (0.0, [])
    assert judged(played(("<answer> </answer>", ""))) == (0.0, [])


def test_all_of_the_last_turn_can_be_graded():
    text = played(("<answer>no</answer>", "x"), ("It is Paris.", ""), answer="Paris, F")
    done, seen = judged(text, "Verdict: correct", extract="last_turn")
    assert done == 1.0
    assert "It is Paris." in seen[0][0]["messages"][0]["content"]


def test_a_judge_without_verdict_or_reach_is_a_fault_and_no_score(monkeypatch):
    done, _ = judged(ASKED, "Hm.")
    assert isinstance(done, VerifierError) and "no verdict" in str(done)
    done, seen = judged(ASKED, (400, "no such model"))
    assert "no such model" in str(done) and len(seen) == 1
    done, _ = judged(ASKED, (200, "plain"))
    assert isinstance(done, VerifierError)


def test_a_busy_judge_is_asked_again():
    done, seen = judged(ASKED, (503, "busy"), "Verdict: correct")
    assert done == 1.0 and len(seen) == 2


def test_a_call_is_judged_by_what_it_brought():
    async def run():
        async with judge_server("Verdict: correct", "Verdict: incorrect") as (
            url,
            seen,
        ):
            options = {"url": url, "model": "j", "timeout": 5.0, "max_tokens": 9}
            asked = {"question": "Q1", "before": "B2", "call": "C3", "result": "R4"}
            return [await judge_call(**asked, **options) for _ in range(2)], seen

    verdicts, seen = asyncio.run(run())
    assert verdicts == [True, False]
    prompt = seen[0][0]["messages"][0]["content"]
    assert all(part in prompt for part in ("Q1", "B2", "C3", "R4"))


def test_an_unknown_place_of_the_answer_is_an_error():
    with pytest.raises(ValueError, match="answer_tag"):
        score(ASKED, Services(decode=decode), "judge", url="", model="", extract="x")
