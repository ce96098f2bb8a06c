import base64
import json
import pathlib
import pickle
import zlib

import pytest

from agentic_jax.config import bind
from agentic_jax.data.layouts import LAYOUTS, read_dataset
from agentic_jax.sources import TASKS

SHARED = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"
DAPO = (
    "Solve the following math problem step by step. The last line (...).\n\n1+1?\n\n"
    'Remember to put your answer on its own line after "Answer:".'
)
RETOOL = "Solve (...)\n*user question:*\n1+1?\n\nRemember to place the final answer (.."
CASE = {"input": "1\n", "output": "2\n", "testtype": "stdin"}
HIDDEN = base64.b64encode(zlib.compress(pickle.dumps(json.dumps([CASE])))).decode()
LCB = {
    "question_content": "Double it.",
    "question_id": "abc",
    "starter_code": "",
    "difficulty": "easy",
    "contest_date": "2025-02-01",
    "public_test_cases": json.dumps([CASE]),
    "private_test_cases": HIDDEN,
    "metadata": "{}",
}


def read(tmp_path, name, *rows, **options):
    path = tmp_path / f"{name}.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return read_dataset(name, path=path, **options)


# name, row, question, answer, verifier, some of the rest
CASES = [
    ("gsm8k", {"question": "q", "answer": "so\n#### 1,234"}, "q", "1234", "math", {}),
    (
        "math500",
        {"problem": "q", "answer": "\\pi", "level": 5, "unique_id": "t/1.json"},
        "q",
        "\\pi",
        "math",
        {"level": 5},
    ),
    (
        "aime24",
        {"ID": "2024-I-1", "Problem": "q", "Answer": 204},
        "q",
        "204",
        "math",
        {},
    ),
    ("svamp", {"question": "q", "answer": 145.0}, "q", "145", "math", {}),
    (
        "dapo_math_17k",
        {
            "prompt": [{"role": "user", "content": DAPO}],
            "reward_model": {"ground_truth": "2", "style": "rule"},
            "extra_info": {"index": "u-1"},
        },
        "1+1?",
        "2",
        "math",
        {},
    ),
    (
        "skywork_or1",
        {
            "prompt": [{"role": "user", "content": "q"}],
            "reward_model": {"ground_truth": '["\\\\frac{1}{2}"]'},
            "extra_info": {"index": 3, "model_difficulty": {"m-7B": 4}},
        },
        "q",
        "\\frac{1}{2}",
        "math",
        {"model_difficulty": {"m-7B": 4}},
    ),
    (
        "skywork_or1",
        {
            "prompt": [{"role": "user", "content": "q"}],
            "reward_model": {"ground_truth": '{"inputs": ["1"], "outputs": ["2"]}'},
            "extra_info": {"index": 3},
        },
        "q",
        "",
        "unit_tests",
        {"tests": {"inputs": ["1"], "outputs": ["2"], "function": ""}},
    ),
    (
        "megascience",
        {"question": "q", "reference_answer": "9.8", "answer": "...", "subject": "p"},
        "q",
        "9.8",
        "math",
        {"subject": "p"},
    ),
    (
        "mmlu",
        {"question": "q", "choices": ["a", "b"], "answer": 1, "subject": "s"},
        "q\nA. a\nB. b",
        "B",
        "choice",
        {"subject": "s"},
    ),
    (
        "hotpotqa",
        {
            "id": "5a",
            "question": "q",
            "answer": "Paris",
            "supporting_facts": {"title": ["A", "B", "A"], "sent_id": [0, 1, 2]},
        },
        "q",
        "Paris",
        "short_answer_f1",
        {"answers": ["Paris"], "supporting_titles": ["A", "B"]},
    ),
    (
        "musique",
        {
            "id": "2hop",
            "question": "q",
            "answer": "NYC",
            "answer_aliases": ["New York"],
            "paragraphs": [
                {"title": "A", "is_supporting": True},
                {"title": "B", "is_supporting": False},
            ],
        },
        "q",
        "NYC",
        "short_answer_f1",
        {"answers": ["NYC", "New York"], "supporting_titles": ["A"]},
    ),
    (
        "2wiki",
        {"id": "d0", "question": "q", "golden_answers": ["a", "b"]},
        "q",
        "a",
        "short_answer_f1",
        {"answers": ["a", "b"]},
    ),
    ("bamboogle", {"Question": "q", "Answer": "a"}, "q", "a", "short_answer_f1", {}),
    (
        "hle",
        {"id": "6", "question": "q", "answer": "C", "answer_type": "multipleChoice"},
        "q",
        "C",
        "choice",
        {},
    ),
    (
        "gaia",
        {"task_id": "t", "Question": "q", "Final answer": "17", "Level": "1"},
        "q",
        "17",
        "short_answer_f1",
        {"level": "1"},
    ),
    (
        "webwalkerqa",
        {"Question": "q", "Answer": "a", "Info": {"Hop": "multi-source"}},
        "q",
        "a",
        "short_answer_f1",
        {"hop": "multi-source"},
    ),
    ("s1k", {"question": "q", "solution": "so \\boxed{7}."}, "q", "7", "math", {}),
    (
        "retool_sft",
        {
            "messages": [
                {"role": "user", "content": RETOOL},
                {"role": "assistant", "content": "<answer>\n\\boxed{'2'}\n</answer>"},
            ]
        },
        "1+1?",
        "2",
        "math",
        {},
    ),
    (
        "tool_star_sft",
        {"input": "q", "output": "<search>x</search><answer>\\boxed{a}</answer>"},
        "q",
        "a",
        "short_answer_f1",
        {},
    ),
    (
        "livecodebench",
        LCB,
        "Double it.\nThe program reads standard input and prints its answer.",
        "",
        "unit_tests",
        {
            "tests": {
                "inputs": ["1\n", "1\n"],
                "outputs": ["2\n", "2\n"],
                "function": "",
            }
        },
    ),
    (
        "livecodebench",
        LCB
        | {
            "starter_code": "class Solution: ...",
            "metadata": '{"func_name": "f"}',
            "private_test_cases": "[]",
            "public_test_cases": '[{"input": "[1, 2]\\n\\"a\\"", "output": "true"}]',
        },
        "Double it.\nBegin with:\n```python\nclass Solution: ...\n```",
        "",
        "unit_tests",
        {"tests": {"inputs": [[[1, 2], "a"]], "outputs": [True], "function": "f"}},
    ),
    (
        "leetcode",
        {
            "task_id": "two-sum",
            "problem_description": "d",
            "starter_code": "class",
            "prompt": "import math",
            "completion": "solved",
            "entry_point": "Solution().f",
            "test": "def check(candidate): ...",
        },
        "d\n```python\nclass\n```",
        "solved",
        "unit_tests",
        {
            "tests": {
                "scripts": ["def check(candidate): ...\ncheck(Solution().f)"],
                "prefix": "import math",
            }
        },
    ),
]


@pytest.mark.parametrize("name, row, question, answer, verifier, rest", CASES)
def test_rows_of_published_sets_become_tasks(
    tmp_path, name, row, question, answer, verifier, rest
):
    (task,) = read(tmp_path, name, row)
    assert task.messages == ({"role": "user", "content": question},)
    assert (task.answer, task.extra["verifier"]) == (answer, verifier)
    assert {key: task.extra[key] for key in rest} == rest
    assert task.id.startswith(f"{name}-")


def test_every_layout_but_those_of_the_shared_data_has_a_case():
    elsewhere = {"aime25", "amc23", "gpqa_diamond", "humaneval", "mbpp"}
    assert {case[0] for case in CASES} | elsewhere == set(LAYOUTS)


GPQA = {
    "Question": "q",
    "Correct Answer": "right\n",
    "Incorrect Answer 1": "w1",
    "Incorrect Answer 2": "w2",
    "Incorrect Answer 3": "w3",
    "Subdomain": "physics",
}


def test_choices_are_shuffled_by_seed_and_the_letter_follows(tmp_path):
    tasks = read(tmp_path, "gpqa_diamond", *[GPQA] * 40, seed=1)
    for task in tasks:
        shown = task.messages[0]["content"].split("\n")[1:]
        assert shown["ABCD".index(task.answer)] == f"{task.answer}. right"
        assert sorted(line[3:] for line in shown) == ["right", "w1", "w2", "w3"]
    assert {task.answer for task in tasks} == set("ABCD")
    letters = [task.answer for task in tasks]
    again = read(tmp_path, "gpqa_diamond", *[GPQA] * 40, seed=1)
    assert [task.answer for task in again] == letters
    other = read(tmp_path, "gpqa_diamond", *[GPQA] * 40, seed=2)
    assert [task.answer for task in other] != letters


def test_what_a_protocol_leaves_out_is_left_out(tmp_path):
    dapo = dict(CASES[4][1])
    assert len(read(tmp_path, "dapo_math_17k", dapo, dapo, dapo)) == 1
    skywork = dict(CASES[5][1])
    empty = skywork | {"reward_model": {"ground_truth": "[]"}}
    assert len(read(tmp_path, "skywork_or1", skywork, empty)) == 1
    gaia = {"Question": "q", "Final answer": "1", "task_id": "a", "file_name": ""}
    with_file = gaia | {"task_id": "b", "file_name": "b.png"}
    hidden = gaia | {"task_id": "c", "Final answer": "?"}
    assert len(read(tmp_path, "gaia", gaia, with_file, hidden)) == 1
    hle = {"question": "q", "answer": "a", "answer_type": "exactMatch"}
    shown = {"id": "s", "image": "data:image/png;base64,"}
    rows = [hle | {"id": str(i)} for i in range(501)]
    tasks = read(tmp_path, "hle", hle | shown, *rows)
    assert [len(tasks), tasks[0].id, tasks[-1].id] == [500, "hle-0", "hle-499"]


def test_a_bad_row_is_named_whatever_is_wrong_with_it(tmp_path):
    good, bad = dict(CASES[4][1]), dict(CASES[4][1])
    del bad["reward_model"]
    with pytest.raises(ValueError, match="line 2: no 'reward_model'; the row has prom"):
        read(tmp_path, "dapo_math_17k", good, bad)
    with pytest.raises(ValueError, match="line 1: .*NoneType"):
        read(tmp_path, "dapo_math_17k", good | {"prompt": None})
    with pytest.raises(ValueError, match="line 1: an answer is empty"):
        read(tmp_path, "gsm8k", {"question": "q", "answer": " "})
    with pytest.raises(ValueError, match="no 'problem' or 'question'"):
        read(tmp_path, "math500", {"answer": "1"})
    evil = base64.b64encode(zlib.compress(pickle.dumps(print))).decode()
    with pytest.raises(ValueError, match="line 1: the pickled tests name builtins.pr"):
        read(tmp_path, "livecodebench", LCB | {"private_test_cases": evil})


def test_a_config_names_a_set(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"question": "q", "answer": "#### 5"}')
    spec = {"name": "dataset", "dataset": "gsm8k", "path": str(path)}
    (task,) = bind(spec | {"system": "s", "instruction": "Box it."}, TASKS)()
    assert [m["content"] for m in task.messages] == ["s", "q\nBox it."]
    with pytest.raises(ValueError, match="'gsm9k' is none of gsm8k"):
        bind(spec | {"dataset": "gsm9k"}, TASKS)()


@pytest.mark.skipif(not SHARED.exists(), reason="no data beside the repository")
def test_real_files_are_read_whole():
    counts = {
        ("aime25", "aime25"): 30,
        ("amc23", "amc23"): 40,
        ("humaneval", "humaneval"): 164,
        ("mbpp", "mbpp"): 974,
        ("hotpotqa", "hotpotqa_distractor100"): 100,
        ("bamboogle", "bamboogle"): 125,
    }
    for (name, stem), count in counts.items():
        tasks = read_dataset(name, path=SHARED / f"{stem}.jsonl")
        assert len(tasks) == count
