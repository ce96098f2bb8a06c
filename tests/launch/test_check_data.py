import asyncio
import collections
import pathlib

import pytest

from agentic_jax.data.layouts import read_dataset
from agentic_jax.trajectory import Task
from launch.check_data import failures, gold_trajectory

SHARED = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"
FILES = {
    "gsm8k_test": "gsm8k",
    "math500": "math500",
    "aime24": "aime24",
    "aime25": "aime25",
    "amc23": "amc23",
    "svamp": "svamp",
    "mmlu_stem": "mmlu",
    "hotpotqa_distractor100": "hotpotqa",
    "hotpotqa_200": "hotpotqa",
    "2wiki_200": "2wiki",
    "musique_200": "musique",
    "bamboogle": "bamboogle",
    "humaneval": "humaneval",
    "mbpp": "mbpp",
}


def task(id, answer, verifier, **extra):
    return Task(id, (), answer, extra={"verifier": verifier, **extra})


def test_gold_answers_that_do_not_score_1_are_found():
    tests = {"inputs": [""], "outputs": ["1"], "function": ""}
    tasks = [
        task("right", "\\frac{1}{2}", "math"),
        task("no-letter", "Paris", "choice"),
        task("qa", "Paris", "short_answer_em"),
        task("not-accepted", "Paris", "short_answer_em", answers=["Rome"]),
        task("code", "print(1)", "unit_tests", tests=tests),
        task("wrong-code", "print(2)", "unit_tests", tests=tests),
    ]
    failed = asyncio.run(failures(tasks, workers=1))
    assert [(t.id, score) for t, score in failed] == [
        ("no-letter", 0.0),
        ("not-accepted", 0.0),
        ("wrong-code", 0.0),
    ]
    with pytest.raises(ValueError, match="names verifier None"):
        gold_trajectory(Task("t", (), "1"))


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.exists(), reason="no data beside the repository")
def test_every_gold_answer_of_the_real_files_scores_1():
    tasks = [
        task
        for stem, name in FILES.items()
        for task in read_dataset(name, path=SHARED / f"{stem}.jsonl")
    ]
    failed = asyncio.run(failures(tasks, workers=2))
    counts = collections.Counter(task.extra["verifier"] for task in tasks)
    assert not failed
    assert set(counts) == {"math", "choice", "short_answer_f1", "unit_tests"}
