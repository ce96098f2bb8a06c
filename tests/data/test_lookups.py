import asyncio
import pathlib

import numpy as np
import pytest

from agentic_jax.data.filters import fold
from agentic_jax.data.layouts import read_dataset
from agentic_jax.data.lookups import lookup_passages, lookup_search, lookups
from agentic_jax.monitor.retrieval import retrieval_stats, supporting_recall
from agentic_jax.tools.base import call_tool
from agentic_jax.tools.search import passage_search_tool
from agentic_jax.trajectory import (
    CallRecord,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
)

SHARED = pathlib.Path(__file__).resolve().parent.parent.parent.parent / "shared"
OPTIONS = {"max_chars": 4_000, "timeout": 30.0}


def searched(task, *texts, stop="answer"):
    calls = tuple(
        CallRecord(ToolCall("search", {"query": "?"}), ToolResult(text, "ok"), 0.1)
        for text in texts
    )
    ids = np.array([1], np.int32)
    turn = Turn(ids, np.zeros(1, np.float32), 0, calls, ids)
    return Trajectory(task, ids, (turn,), stop, 1.0)


def asked(tool, task, *queries):
    """The trajectory of a teacher that makes these searches."""

    async def ask():
        calls = [ToolCall("search", {"query": query}) for query in queries]
        return [await call_tool(call, {"search": tool}) for call in calls]

    return searched(task, *(result.text for result in asyncio.run(ask())))


def task_about(*titles):
    return Task("t", (), "a", "qa", {"supporting_titles": list(titles)})


def test_recall_is_the_share_of_titles_that_results_show():
    task = task_about("Ada Ash", "Viva (UK)", "Mayor")
    texts = "Doc 1 (Title: Ada Ash) born", "Doc 1 (Title: Viva (UK)) Mayor Ada"
    assert supporting_recall(searched(task, *texts)) == pytest.approx(2 / 3)
    assert supporting_recall(searched(task)) == 0.0


def test_recall_is_over_trajectories_without_faults_and_absent_without_titles():
    task, shown = task_about("A"), "(Title: A)"
    played = [searched(task, shown), searched(task), searched(task, stop="fault")]
    assert retrieval_stats(played) == {
        "tool/supporting_recall": 0.5,
        "tool/all_supporting_fraction": 0.5,
    }
    assert retrieval_stats([searched(Task("t", (), "a"), shown)]) == {}


def test_the_two_look_ups_of_a_generated_question_lead_to_its_answer():
    tool = lookup_search(seed=3, k=2, **OPTIONS)
    for task in lookups(split="eval", count=16, seed=3):
        person, town = task.extra["supporting_titles"]
        played = asked(tool, task, f"Where was {person} born?", f"mayor of {town}")
        assert supporting_recall(played) == 1.0
        assert task.answer in played.calls[-1].result.text
        alone = asked(tool, task, f"Where was {person} born?")
        assert task.answer not in alone.calls[0].result.text


def test_splits_share_facts_but_no_question():
    train, held_out = (lookups(split=s, count=16, seed=0) for s in ("train", "eval"))
    assert not {t.id for t in train} & {t.id for t in held_out}
    titles = {p.title for p in lookup_passages(seed=0)}
    for task in (*train, *held_out):
        assert set(task.extra["supporting_titles"]) <= titles
    with pytest.raises(ValueError, match="there are 16 questions of eval"):
        lookups(split="eval", count=17, seed=0)
    with pytest.raises(ValueError, match="'test'"):
        lookups(split="test", count=1, seed=0)


def test_folds_share_no_problem_and_leave_none_out():
    tasks = [Task(f"q{i}", (), "") for i in range(40)]
    held = [t for t in tasks if fold(t, folds=4, kept=[3])]
    assert 4 <= len(held) <= 16
    rest = [t for t in tasks if fold(t, folds=4, kept=[0, 1, 2])]
    assert len(held) + len(rest) == 40


@pytest.mark.skipif(not SHARED.exists(), reason="no shared data beside the repo")
def test_bm25_shows_three_quarters_of_the_supporting_passages_of_hotpotqa():
    path = SHARED / "data" / "wiki_passages.jsonl"
    tool = passage_search_tool(path=str(path), k=5, **OPTIONS)
    tasks = read_dataset(
        "hotpotqa", path=SHARED / "data" / "hotpotqa_distractor100.jsonl"
    )
    played = [asked(tool, task, task.messages[-1]["content"]) for task in tasks]
    recall = retrieval_stats(played)["tool/supporting_recall"]
    # Plain BM25 finds 0.74 of them in its first five.
    assert recall == pytest.approx(0.74, abs=0.03)
