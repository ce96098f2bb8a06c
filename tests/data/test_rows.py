import json

import pytest

from agentic_jax.data.rows import hub_rows, read_rows
from agentic_jax.data.tasks import read_tasks

ROWS = [{"q": "1+1?", "a": "2"}, {"q": "é\u2028?", "a": "3"}]


def write_parquet(path, rows):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.Table.from_pylist(rows), path)
    return path


@pytest.fixture
def files(tmp_path):
    """The same rows in each format."""
    lines = "\n".join(json.dumps(row) for row in ROWS)
    (tmp_path / "x.jsonl").write_text(lines + "\n\n", "utf-8")
    (tmp_path / "x.json").write_text(json.dumps(ROWS), "utf-8")
    csv_text = 'q,a\r\n1+1?,2\r\n"é\u2028?",3\r\n'
    (tmp_path / "x.csv").write_text(csv_text, "utf-8", newline="")
    write_parquet(tmp_path / "x.parquet", ROWS)
    return tmp_path


@pytest.mark.parametrize(
    "suffix, place",
    [("jsonl", "line 2"), ("json", "item 2"), ("csv", "row 2"), ("parquet", "row 2")],
)
def test_every_format_gives_the_same_rows_and_says_where_they_stand(
    files, suffix, place
):
    rows = list(read_rows(files / f"x.{suffix}"))
    assert [dict(row.values) for row in rows] == ROWS
    assert rows[1].where == f"{files}/x.{suffix}, {place}"
    tasks = read_tasks(files / f"x.{suffix}", fields={"question": "q", "answer": "a"})
    assert [(task.id, task.answer) for task in tasks] == [("x-1", "2"), ("x-2", "3")]


def test_a_bad_row_of_a_parquet_file_is_named(tmp_path):
    path = write_parquet(tmp_path / "x.parquet", [ROWS[0], {"q": "?", "a": None}])
    with pytest.raises(ValueError, match="x.parquet, row 2: no 'a'"):
        read_tasks(path, fields={"question": "q", "answer": "a"})


def test_other_files_are_refused_with_what_is_read(tmp_path):
    (tmp_path / "x.xlsx").write_bytes(b"")
    with pytest.raises(ValueError, match="x.xlsx is none of .jsonl, .json, .csv"):
        read_rows(tmp_path / "x.xlsx")
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ValueError, match="x.json holds no list but dict"):
        list(read_rows(tmp_path / "x.json"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_dataset_is_read_by_name_offline(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    pytest.importorskip("datasets")
    write_parquet(tmp_path / "train.parquet", ROWS)
    rows = list(hub_rows(str(tmp_path), config=None, split="train"))
    assert [dict(row.values) for row in rows] == ROWS
    assert rows[1].where == f"{tmp_path} (train), row 2"
