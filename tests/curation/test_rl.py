import json

import pytest

from agentic_jax.curation.rl import curate_rl
from agentic_jax.data.rows import read_rows
from agentic_jax.sources import TASKS
from tests.curation.recipes import options, player, recipe

RIGHTS = (0, 1, 2, 4, 6, 8)  # Of 8: unsolved, hard, hard, medium, easy, solved.


def curated(out, rights=RIGHTS, problems=6, log="", rollout=None, **changes):
    asked = options("rl", player=player(rights=rights, log=str(log)), **changes)
    return curate_rl(recipe(problems, rollout=rollout), out, asked)


def test_problems_get_rates_and_bins_and_those_without_a_signal_go(tmp_path):
    summary = curated(tmp_path)
    assert summary["labels"] == {
        **{"unsolved": 1, "hard": 2, "medium": 1, "easy": 1, "solved": 1},
        "unscored": 0,
    }
    assert summary["histogram"] == {"hard": 0.5, "medium": 0.25, "easy": 0.25}
    assert summary["solve_rate_mean"] == pytest.approx(21 / 48)
    rows = [row.values for row in read_rows(tmp_path / "rates.jsonl")]
    assert [row["solve_rate"] for row in rows] == [r / 8 for r in RIGHTS]
    source = json.loads((tmp_path / "summary.json").read_text())["tasks"]
    tasks = TASKS[source.pop("name")](**source)
    assert [(t.extra["solve_rate"], t.extra["bin"]) for t in tasks] == [
        *((0.125, "hard"), (0.25, "hard"), (0.5, "medium"), (0.75, "easy"))
    ]
    played = recipe().tasks()[1:5]
    for task, first in zip(tasks, played, strict=True):
        fields = (task.id, task.messages, task.answer, task.domain)
        assert fields == (first.id, first.messages, first.answer, first.domain)
        assert task.extra["factors"] == first.extra["factors"]


def test_a_target_is_matched_and_may_be_that_of_another_policy(tmp_path):
    target = {"name": "shares", "hard": 0.5, "medium": 0.25, "easy": 0.25}
    summary = curated(tmp_path / "strong", problems=12, target=target, count=16)
    assert summary["kept_histogram"] == {"hard": 0.5, "medium": 0.25, "easy": 0.25}
    rows = [row.values for row in read_rows(tmp_path / "strong" / "problems.jsonl")]
    assert len({row["id"] for row in rows}) == 16  # Four hard ones, each twice.
    assert sum("-again-1" in row["id"] for row in rows) == 8
    target = {"name": "like", "path": str(tmp_path / "strong")}
    weak = curated(tmp_path / "weak", (0, 4, 1, 6), problems=8, target=target)
    assert weak["kept_histogram"] == {"hard": 0.5, "medium": 0.25, "easy": 0.25}
    with pytest.raises(ValueError, match="count is 4, but .*target.name is 'none'"):
        curated(tmp_path / "x", count=4)


def test_a_newer_policys_curation_says_what_moved(tmp_path):
    curated(tmp_path / "old", (0, 4))
    summary = curated(tmp_path / "new", (4, 8), previous=str(tmp_path / "old"))
    assert summary["moved"] == {"medium -> solved": 3, "unsolved -> medium": 3}


def test_nothing_is_played_twice_and_more_may_be_asked_for(tmp_path):
    log, out = tmp_path / "log", tmp_path / "out"
    curated(out, log=log, problems=6, samples=2, rights=(1,))
    journal = (out / "scores.jsonl").read_bytes()
    (out / "scores.jsonl").write_bytes(journal[:-40])  # Within a line.
    curated(out, log=log, problems=6, samples=4, rights=(1,))
    played = log.read_text().split("\n")[:-1]
    whole = json.loads((out / "summary.json").read_text())
    assert whole["labels"]["hard"] == 6 and whole["samples"] == 4
    lines = (out / "scores.jsonl").read_text().splitlines()[1:]
    assert sorted(json.loads(line)[0] for line in lines) == [
        [p, g] for p in range(6) for g in range(4)
    ]
    kept = journal[:-40].count(b"\n") - 1
    assert 0 < kept < 12
    assert len(played) == 12 + 24 - kept
    fewer = curated(out, log=log, problems=6, samples=2, rights=(1,))
    assert fewer["labels"]["medium"] == 6  # One of two.
    assert len(log.read_text().split("\n")[:-1]) == len(played)


def test_rollouts_of_another_policy_are_not_taken_over(tmp_path):
    curated(tmp_path)
    with pytest.raises(ValueError, match=r"other settings.*\n.*player.rights: .* -> "):
        curated(tmp_path, rights=(1,))
    curated(tmp_path, rollout={"concurrency": 2})
    with pytest.raises(ValueError, match="  rollout.temperature: 1.0 -> 0.5$"):
        curated(tmp_path, rollout={"temperature": 0.5})
    with pytest.raises(ValueError, match="  tasks: '.*' -> '"):
        curated(tmp_path, problems=7)


def test_too_many_faults_stop_it_and_are_played_again(tmp_path):
    with pytest.raises(RuntimeError, match="1 of 8 .* lost to faults.* no server"):
        curated(tmp_path, rights=(-1,), problems=1)
    with pytest.raises(RuntimeError, match="5 of 48 .* allows 0.1"):
        curated(tmp_path / "more", rights=(-1, 1, 1, 1, 1, 1))
    journal = (tmp_path / "more" / "scores.jsonl").read_text()
    assert "[[0," not in journal


def test_problems_without_any_signal_are_an_error_that_counts_them(tmp_path):
    with pytest.raises(ValueError, match=r"no problem .* but {'unsolved': 6}"):
        curated(tmp_path, rights=(0,))
