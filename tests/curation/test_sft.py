import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from agentic_jax.chat.tokenizer import train_tokenizer
from agentic_jax.curation.filters import best_of_each, http_scorer, well_formed
from agentic_jax.curation.sft import curate_sft, curate_stitched
from agentic_jax.training.sft import read_trajectories
from tests.curation.recipes import options, player, recipe
from tests.data.test_stitch import CALL, TEACHER, written
from tests.fakes import trajectory, turn


def curated(out, curate=curate_sft, rights=(1, 2), problems=4, log="", **changes):
    asked = options("sft", player=player(rights=rights, log=str(log)), samples=2)
    return curate(recipe(problems), out, {**asked, **changes})


def test_what_is_right_is_kept_in_the_form_that_sft_reads(tmp_path):
    summary = curated(tmp_path)
    assert summary == json.loads((tmp_path / "summary.json").read_text())
    assert (summary["played"], summary["kept"]) == (8, 6)
    assert summary["dropped"] == {"correct": 2}
    assert summary["kept_per_source"] == {"arithmetic": 6}
    kept = read_trajectories(tmp_path / "trajectories.jsonl")
    tasks = recipe(4).tasks()
    wanted = [tasks[p].id for p in (0, 1, 1, 2, 3, 3)]
    assert [t.task.id for t in kept] == wanted
    assert all(t.score == 1.0 for t in kept)


def test_filters_change_without_a_new_rollout(tmp_path):
    log = tmp_path / "log"
    curated(tmp_path / "out", log=log)
    filters = {"short": {"name": "max_tokens", "limit": 1}}
    summary = curated(tmp_path / "out", log=log, filters=filters)
    assert summary["dropped"] == {"short": 8}
    summary = curated(tmp_path / "out", log=log, most_per_problem=1, most_per_source=3)
    assert summary["dropped"] == {
        **{"correct": 2, "most_per_problem": 2, "most_per_source": 1}
    }
    assert summary["kept"] == summary["problems_kept"] == 3
    assert log.read_text().count("\n") == 8
    summary = curated(tmp_path / "out", log=log, samples=1)
    assert (summary["played"], summary["kept"]) == (4, 4)
    assert log.read_text().count("\n") == 8


def test_a_scorer_ranks_and_its_scores_are_kept(tmp_path):
    scorer = {"name": "tests.curation.players:shortest", "scale": 1.0}
    summary = curated(tmp_path, scorer=scorer, most_per_source=2, least_score=-100.0)
    assert summary["kept"] == 2
    scores = [
        json.loads(line)[1]
        for line in (tmp_path / "scores.jsonl").read_text().splitlines()[1:]
    ]
    kept = read_trajectories(tmp_path / "trajectories.jsonl")
    assert sorted(scores)[-2:] == sorted(-len(t.token_ids) for t in kept)
    assert summary["score_mean"] == sum(sorted(scores)[-2:]) / 2
    summary = curated(tmp_path, scorer=scorer, least_score=max(scores))
    assert summary["kept"] == scores.count(max(scores))
    with pytest.raises(ValueError, match=r"scorer.scale: 1.0 -> 2.0"):
        curated(tmp_path, scorer={**scorer, "scale": 2.0})


def test_the_stitched_baseline_has_calls_that_were_never_run(tmp_path):
    summary = curated(tmp_path, curate_stitched)
    assert (summary["kept"], summary["calls_mean"]) == (6, 1.0)
    first = read_trajectories(tmp_path / "trajectories.jsonl")[0]
    assert [r.result.text for r in first.calls] == ["6"]
    assert first.calls[0].seconds == 0.0
    with pytest.raises(ValueError, match="with_tools: False -> True"):
        curated(tmp_path)


def test_trajectories_may_be_written_for_another_tokenizer(tmp_path):
    student = train_tokenizer([], vocab_size=263)
    student.save_pretrained(tmp_path / "student")
    curated(tmp_path / "own")
    curated(tmp_path / "own_bytes", tokenizer=str(tmp_path / "student"))
    own, told = (
        read_trajectories(tmp_path / name / "trajectories.jsonl")
        for name in ("own", "own_bytes")
    )
    assert len(own) == len(told) == 6
    for mine, theirs in zip(own, told, strict=True):
        assert theirs.token_ids.max() < 263
        text = student.decode(theirs.turns[0].token_ids)
        assert text.startswith("2 * 3 = 6 \\boxed{") and theirs.task == mine.task


@pytest.mark.parametrize(
    "text, stop, kept",
    [
        ("\\boxed{4}", "answer", True),
        ("\\boxed{4}", "max_turns", False),
        ('<tool_call>\n{"name": "python", "argum', "answer", False),
    ],
)
def test_well_formed_ends_with_an_answer(text, stop, kept):
    ended = written(text)
    assert well_formed(type(ended)(**{**vars(ended), "stop": stop}), TEACHER) == kept


def test_calls_that_fail_stay_and_calls_that_cannot_be_read_do_not():
    failed = trajectory([5], turn([6], [7], ["error"]), turn([8]))
    assert well_formed(failed, TEACHER)
    broken = turn([6], [7], ["bad_call"])
    object.__setattr__(broken.calls[0].call, "arguments", None)
    assert not well_formed(trajectory([5], broken, turn([8])), TEACHER)


def test_the_best_of_each_group_go_by_score_and_then_by_order():
    groups = ["a", "b", "a", "a", "b"]
    scores = [1.0, 0.0, 3.0, 1.0, 2.0]
    assert best_of_each(groups, scores, 2) == [0, 1, 2, 4]
    assert best_of_each(groups, scores, 1) == [2, 4]
    assert best_of_each(groups, scores, 0) == [0, 1, 2, 3, 4]


class _Scorer(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(asked)
        status, body = self.server.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def scorer():
    with HTTPServer(("127.0.0.1", 0), _Scorer) as server:
        server.asked, server.answers = [], []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_scorer_over_http_reads_turns_and_results(scorer):
    url = f"http://127.0.0.1:{scorer.server_port}"
    scored = trajectory(
        TEACHER.encode("?"),
        turn(TEACHER.encode(CALL % "1"), [7], ["ok"]),
        turn(TEACHER.encode("\\boxed{4}")),
    )

    def ask():
        return asyncio.run(http_scorer(scored, TEACHER, url=url, timeout=5.0))

    scorer.answers = [(200, b'{"score": 0.25}')]
    assert ask() == 0.25
    assert scorer.asked == [
        {
            "id": "t",
            "messages": [{"role": "user", "content": "2+2?"}],
            "answer": "4",
            "turns": [
                {"text": CALL % "1", "results": ["1"]},
                {"text": "\\boxed{4}", "results": []},
            ],
        }
    ]
    for bad in (
        (500, b'{"score": 1}'),
        (200, b"[]"),
        (200, b'{"score": "?"}'),
        (200, b"{"),
    ):
        scorer.answers = [bad]
        with pytest.raises(
            OSError, match="the scorer http.* failed on task t: .*resum"
        ):
            ask()
