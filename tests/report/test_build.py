import json
import os

import pytest

from agentic_jax.monitor.trace import read_trace, trace_path, write_trace
from agentic_jax.report.build import build_report, open_runs
from agentic_jax.report.rows import entropy_changes, sample_detail, sample_line
from tests.report.runs import Words, fault_row, trace_row, write_run

HOSTILE = "</script><script>x()</script>\u2028\x00\x1b[31m\u202e\ud800\"'\\`${x}\n"


def received(path):
    """What a data file hands over; checks that it is one call with two strings."""
    text = path.read_text("ascii")
    assert text.startswith("report.receive(") and text.endswith(");\n")
    assert text.count("\n") == 1
    name, value = json.loads(f"[{text[len('report.receive(') : -3]}]")
    return name, json.loads(value)


def written_row(tmp_path, row, words):
    (written,) = write_trace(tmp_path, 5, [row], decode=words.decode)
    return written


def test_a_line_has_the_numbers_of_its_trajectory(tmp_path):
    words = Words()
    line = sample_line(written_row(tmp_path, trace_row(words), words))
    assert (line["tokens"], line["sampled"], line["turns"]) == (6, 4, 2)
    assert (line["reward"], line["score"], line["stop"]) == (0.75, 1.0, "answer")
    assert line["statuses"] == ["ok"] and line["seconds"] == 0.125
    assert line["staleness"] == 1  # Version 4 at step 5.
    assert line["entropy"] == pytest.approx(0.3)  # (2 * 0.5 + 2 * 0.1) / 4
    assert line["logprob"] == pytest.approx(-0.5625)  # -(3 * 0.5 + 0.75) / 4
    assert line["mismatch"] == 0.25


def test_a_fault_has_a_line_and_a_detail_without_tokens(tmp_path):
    words = Words()
    row = written_row(tmp_path, fault_row(words, group=0, sample=0), words)
    assert sample_line(row)["stop"] == "fault"
    assert sample_line(row)["tokens"] == 0
    detail = sample_detail(row)
    assert detail["fault"] == "no pool"
    assert [turn["end"] for turn in detail["turns"]] == [0, 0]


def test_turns_know_their_tokens_and_the_entropy_change_of_their_calls(tmp_path):
    words = Words()
    detail = sample_detail(written_row(tmp_path, trace_row(words), words))
    first, last = detail["turns"]
    assert (first["start"], first["results"], first["end"]) == (3, 5, 7)
    assert (last["start"], last["results"], last["end"]) == (7, 9, 9)
    assert first["entropy_change"] == pytest.approx(-0.4)
    assert last["entropy_change"] is None
    assert detail["texts"][3:5] == ["<call>", "print(2*3)"]


def test_a_trajectory_that_ends_in_a_result_has_no_change_after_it():
    tokens = {"turn": [0, 1, 1], "mask": [0, 1, 0], "entropy": [0, 1, 0]}
    assert entropy_changes(tokens, 1) == [None]
    assert entropy_changes({"turn": [], "mask": [], "entropy": []}, 0) == []


def test_each_step_and_group_has_its_file_and_is_built_once(tmp_path):
    runs = open_runs([write_run(tmp_path / "rl", steps=3)])
    out = tmp_path / "out"
    assert build_report(runs, out) == 3
    data = out / "data" / runs[0].key
    name, step = received(data / "steps" / "2.js")
    assert name == f"{runs[0].key}/steps/2"
    assert [s["score"] for s in step["samples"]] == [1.0, 0.0, 1.0, 0.0]
    assert [g["problem"] for g in step["groups"]] == ["2*3? (0)", "2*3? (1)"]
    assert len(received(data / "groups" / "2" / "1.js")[1]["samples"]) == 2
    assert len(received(data / "texts" / "2.js")[1]) == 4
    assert (out / "index.html").exists() and (out / "main.js").exists()
    assert build_report(runs, out) == 0
    source = trace_path(runs[0].workdir, 1)  # A resumed run writes it again.
    later = (data / "steps" / "1.js").stat().st_mtime_ns + 10**9
    os.utime(source, ns=(later, later))
    assert build_report(runs, out) == 1


def test_text_of_a_model_stays_a_string(tmp_path):
    workdir = write_run(tmp_path / "rl", steps=1, trace_steps=())
    words = Words()
    row = trace_row(words, code=HOSTILE, output=HOSTILE)
    row["turns"][0]["calls"][0]["call"]["arguments"]["__proto__"] = HOSTILE
    write_trace(workdir, 0, [row], decode=words.decode)
    runs = open_runs([workdir])
    build_report(runs, tmp_path / "out")
    path = tmp_path / "out" / "data" / runs[0].key / "groups" / "0" / "0.js"
    detail = received(path)[1]["samples"][0]
    assert detail["texts"][4] == HOSTILE
    assert "".join(detail["texts"]) == read_trace(trace_path(workdir, 0))[0]["text"]
    assert detail["turns"][0]["calls"][0]["result"]["text"] == HOSTILE


def test_runs_of_one_recipe_are_told_from_others_whatever_their_seeds(tmp_path):
    a = write_run(tmp_path / "a" / "rl", steps=2, seed=0)
    b = write_run(tmp_path / "b" / "rl", steps=1, seed=1, trace_steps=())
    c = write_run(tmp_path / "c" / "rl", steps=1, trace_steps=())
    config = json.loads((c / "config.json").read_text())
    (c / "config.json").write_text(json.dumps({**config, "kl": {"name": "k3"}}))
    build_report(open_runs([a, b, c]), tmp_path / "out")
    name, value = received(tmp_path / "out" / "data" / "runs.js")
    assert (name, value["live"]) == ("runs", False)
    first, second, third = value["runs"]
    assert [run["name"] for run in value["runs"]] == ["a/rl", "b/rl", "c/rl"]
    assert first["recipe"] == second["recipe"] != third["recipe"]
    assert first["x"] == [0, 1] and first["metrics"]["reward/mean"] == [0, 0.5]
    assert (first["steps"], second["steps"]) == ([0, 1], [])
    assert first["config"]["kl.name"] == "none"


def test_a_directory_without_a_run_is_named_with_the_runs_below_it(tmp_path):
    write_run(tmp_path / "q" / "rl", steps=1, trace_steps=())
    with pytest.raises(ValueError, match=r"q has no metrics.jsonl.*runs lie in .*q/rl"):
        open_runs([tmp_path / "q"])
    with pytest.raises(ValueError, match="give each run once"):
        open_runs([tmp_path / "q" / "rl"] * 2)
