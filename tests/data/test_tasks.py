import json
import pathlib

import pytest

from agentic_jax.data.tasks import TaskStream, fingerprint, read_tasks
from agentic_jax.trajectory import Task

SHARED = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"
QA = {"question": "question", "answer": "answer"}


def write(tmp_path, *rows, name="problems.jsonl"):
    path = tmp_path / name
    lines = [
        row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows
    ]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def read_one(tmp_path, row, **options):
    (task,) = read_tasks(write(tmp_path, row), **{"fields": QA, **options})
    return task


def test_fields_are_mapped_and_the_rest_is_kept(tmp_path):
    row = {"q": "1+1?", "a": "2", "uid": 7, "level": "easy"}
    fields = {"question": "q", "answer": "a", "id": "uid"}
    task = read_one(tmp_path, row, fields=fields, domain="sums")
    messages = ({"role": "user", "content": "1+1?"},)
    assert task == Task("7", messages, "2", "sums", {"level": "easy"})


def test_system_and_instruction_surround_the_question(tmp_path):
    row = {"question": "1+1?", "answer": "2"}
    task = read_one(tmp_path, row, system="Be brief.", instruction="Box it.")
    assert task.messages == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1+1?\nBox it."},
    )
    assert task.id == "problems-1"


@pytest.mark.parametrize(
    "answer, text, extra",
    [
        ("2", "2", {}),
        (27.0, "27", {}),
        (0, "0", {}),
        (0.5, "0.5", {}),
        (["NYC", 3.0], "NYC", {"answers": ["NYC", "3"]}),
    ],
)
def test_answers_become_text(tmp_path, answer, text, extra):
    task = read_one(tmp_path, {"question": "?", "answer": answer})
    assert (task.answer, task.extra) == (text, extra)


def test_choices_get_letters(tmp_path):
    row = {"question": "Which?", "answer": 1, "choices": ["ox", "elk"]}
    task = read_one(tmp_path, row, fields=QA | {"choices": "choices"})
    assert task.messages[0]["content"] == "Which?\nA. ox\nB. elk"
    assert (task.answer, task.extra) == ("B", {})


def test_messages_may_be_given_whole(tmp_path):
    messages = [{"role": "user", "content": "hi"}]
    row = {"messages": messages, "answer": "2"}
    fields = {"messages": "messages", "answer": "answer"}
    assert read_one(tmp_path, row, fields=fields).messages == tuple(messages)


def test_each_row_may_have_a_domain_and_tests_in_place_of_an_answer(tmp_path):
    row = {"question": "?", "answer": "", "kind": "code", "tests": {"scripts": ["1"]}}
    task = read_one(tmp_path, row, fields=QA | {"domain": "kind"})
    assert (task.answer, task.domain) == ("", "code")
    assert task.extra == {"tests": {"scripts": ["1"]}}


def test_only_newlines_end_a_line(tmp_path):
    text = "a\u2028b\x85c\u2029d\x0be"
    row = json.dumps({"question": text, "answer": "1"}, ensure_ascii=False).encode()
    windows = row.replace(b'"1"', b'"2"') + b"\r"
    tasks = read_tasks(write(tmp_path, row, b"", windows), fields=QA)
    assert [task.messages[0]["content"] for task in tasks] == [text, text]
    assert [task.id for task in tasks] == ["problems-1", "problems-3"]


@pytest.mark.parametrize(
    "row, problem",
    [
        (b'{"question": "1', "Unterminated"),
        (b"[" * 100_000, "recursion"),
        (b"[1]", "not a JSON object but list"),
        (b'{"question": "\xff"}', "utf-8"),
        ({"question": "?"}, "no 'answer'; the row has question"),
        ({"question": "?", "answer": ""}, "no 'answer'"),
        ({"question": "?", "answer": None}, "no 'answer'"),
        ({"question": "?", "answer": []}, "no 'answer'"),
        ({"question": "?", "answer": True}, "text or a number, not True"),
        ({"question": "?", "answer": {"x": 1}}, "text or a number"),
        ({"question": 5, "answer": "1"}, "a question is text, not 5"),
    ],
)
def test_a_bad_line_is_named_by_file_and_number(tmp_path, row, problem):
    path = write(tmp_path, {"question": "?", "answer": "1"}, b"", row)
    with pytest.raises(ValueError, match=f"problems.jsonl, line 3: .*{problem}"):
        read_tasks(path, fields=QA)


def test_other_unusable_files_say_why(tmp_path):
    with pytest.raises(FileNotFoundError, match="no problem file"):
        read_tasks(tmp_path / "none.jsonl", fields=QA)
    with pytest.raises(ValueError, match="holds no problem"):
        read_tasks(write(tmp_path, b""), fields=QA)
    row = {"question": "?", "answer": "1", "id": "x"}
    with pytest.raises(ValueError, match="line 2: id 'x' was used before"):
        read_tasks(write(tmp_path, row, row), fields=QA | {"id": "id"})
    choices = row | {"answer": 2, "choices": ["ox", "elk"]}
    with pytest.raises(ValueError, match="answer 2 is none of 2 choices"):
        read_one(tmp_path, choices, fields=QA | {"choices": "choices"})
    messages = {"messages": ["hi"], "answer": "1"}
    with pytest.raises(ValueError, match="a message has a role and content"):
        read_one(
            tmp_path, messages, fields={"messages": "messages", "answer": "answer"}
        )


@pytest.mark.parametrize(
    "fields", [{"question": "q"}, {"answer": "a"}, QA | {"gold": "g"}]
)
def test_an_impossible_mapping_is_refused(tmp_path, fields):
    with pytest.raises(ValueError, match="fields maps"):
        read_one(tmp_path, {}, fields=fields)


def made(n: int, answer: str = "1") -> list[Task]:
    return [Task(str(i), ({"role": "user", "content": "?"},), answer) for i in range(n)]


def ids(tasks):
    return [task.id for task in tasks]


def test_every_epoch_holds_each_task_once_in_an_order_of_its_own():
    stream = TaskStream(made(10), 0)
    epochs = [ids(stream.next(10)) for _ in range(3)]
    assert all(sorted(epoch, key=int) == ids(made(10)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) == 3


def test_the_order_depends_on_the_seed_and_not_on_the_batch_size():
    whole = ids(TaskStream(made(10), 3).next(24))
    stream = TaskStream(made(10), 3)
    parts = [ids(stream.next(n)) for n in (4, 4, 4, 8, 1, 0, 3)]
    assert sum(parts, []) == whole
    assert ids(TaskStream(made(10), 4).next(24)) != whole


@pytest.mark.parametrize("taken", [0, 4, 9, 10, 12, 20, 23])
def test_a_restored_stream_goes_on_where_it_stopped(taken):
    stream = TaskStream(made(10), 1)
    stream.next(taken)
    state = json.loads(json.dumps(stream.state()))
    resumed = TaskStream(made(10), 1)
    resumed.next(7)
    resumed.restore(state)
    assert ids(resumed.next(15)) == ids(stream.next(15))


def test_changed_problems_and_seeds_are_refused_on_restore():
    state = TaskStream(made(10), 1).state()
    for tasks in (made(9), made(10, answer="2"), made(10)[::-1]):
        with pytest.raises(ValueError, match="problems have changed .* new workdir"):
            TaskStream(tasks, 1).restore(state)
    with pytest.raises(ValueError, match="seed is 2, but .* seed 1"):
        TaskStream(made(10), 2).restore(state)
    with pytest.raises(ValueError, match="at least one task"):
        TaskStream([], 0)


def test_the_fingerprint_covers_every_field():
    base = Task("1", ({"role": "user", "content": "?"},), "1", "math", {"x": [1]})
    others = [
        Task("2", base.messages, "1", "math", base.extra),
        Task("1", ({"role": "user", "content": "!"},), "1", "math", base.extra),
        Task("1", base.messages, "2", "math", base.extra),
        Task("1", base.messages, "1", "sums", base.extra),
        Task("1", base.messages, "1", "math", {"x": [2]}),
    ]
    assert len({fingerprint([task]) for task in [base, *others]}) == 6


@pytest.mark.skipif(not SHARED.exists(), reason="no data beside the repository")
@pytest.mark.parametrize(
    "name, fields, rows",
    [
        ("gsm8k_test", {}, 1319),
        ("math500", {"question": "problem"}, 500),
        ("aime24", {"question": "problem", "id": "id"}, 30),
        ("aime25", {"question": "problem", "id": "id"}, 30),
        ("amc23", {"question": "problem", "id": "id"}, 40),
        ("svamp", {}, 1000),
        ("mmlu_stem", {"choices": "choices"}, 3018),
        ("hotpotqa_distractor100", {"id": "id"}, 100),
        ("bamboogle", {}, 125),
    ],
)
def test_real_problem_files_are_read(name, fields, rows):
    tasks = read_tasks(SHARED / f"{name}.jsonl", fields=QA | fields)
    assert len(tasks) == rows
