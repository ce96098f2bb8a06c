import dataclasses
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import jax.numpy as jnp
import numpy as np
import pytest

from agentic_jax.evaluation.benchmark import summary
from agentic_jax.evaluation.suite import evaluate_suite, weights_fingerprint
from agentic_jax.recipe import build_rl
from agentic_jax.sources import Model
from configs import quickstart

ROOT = pathlib.Path(__file__).parent.parent.parent
QUESTIONS = {"fields": {"question": "q", "answer": "a"}}


@functools.cache
def model() -> Model:
    return build_rl(quickstart.get_config("tiny")).model()


def recipe(tmp_path, answers="1234", **eval_options):
    """Problems whose answers are digits, played by an engine that counts."""
    path = tmp_path / "problems.jsonl"
    rows = [json.dumps({"q": f"Say {a}.", "a": a}) + "\n" for a in answers]
    path.write_text("".join(rows), "utf-8")
    config = quickstart.get_config("tiny")
    config.eval_tasks = {"name": "jsonl", "path": str(path), **QUESTIONS}
    config.engine = {
        "name": "tests.evaluation.engines:counting",
        "log": str(tmp_path / "log"),
    }
    config.tools, config.sandbox = {}, {"name": "none"}
    config.verifier = {"name": "math", "equality": "strict"}
    config.eval.update(problems=len(answers), **eval_options)
    return build_rl(config)


def played(tmp_path):
    return sorted((tmp_path / "log").read_text().split())


def test_runs_have_a_mean_and_a_deviation(tmp_path):
    """Problems 1 to 4 get answers 1, 2 in the first run and 3, 4 in the second."""
    built = recipe(tmp_path, "1244", samples=2, runs=2)
    done = evaluate_suite(built, model(), modes=["tools"], journals=None)["tools"]
    assert done.run_means == [0.25, 0.25]
    assert done.average == 0.25 and done.run_std == 0.0
    built = recipe(tmp_path, "1111", samples=2, runs=2)
    done = evaluate_suite(built, model(), modes=["tools"], journals=None)["tools"]
    assert done.run_means == [0.5, 0.0]
    # Mean 0.25; deviations 0.25 and -0.25, squares over 2 - 1.
    assert done.run_std == pytest.approx(0.125**0.5)
    assert done.estimates["pass@2"][0] == pytest.approx(1 - 3 / 6)  # C(3,2) / C(4,2)
    assert done.estimates["maj@2"][0] == 0.5  # Right in the first run only.
    numbers = summary(done)
    assert numbers["runs"] == 2 and list(numbers["scores"].values())[0] == [1, 0, 0, 0]


def test_what_a_journal_has_is_not_played_again(tmp_path):
    built = recipe(tmp_path, samples=3)
    play = functools.partial(
        evaluate_suite, built, model(), modes=["tools"], journals=tmp_path / "j"
    )
    straight = play()["tools"]
    assert len(played(tmp_path)) == 12
    journal = tmp_path / "j" / "eval.tools.jsonl"
    lines = journal.read_bytes().split(b"\n")
    journal.write_bytes(b"\n".join(lines[:6]) + b"\n" + lines[6][:40])  # 5 and a piece.
    (tmp_path / "log").unlink()
    resumed = play()["tools"]
    kept = {tuple(json.loads(line)[0]) for line in lines[1:6]}
    wanted = {(p, g) for p in range(4) for g in range(3)} - kept
    assert played(tmp_path) == sorted(f"eval-0-{p}-{g}" for p, g in wanted)
    assert summary(resumed) == summary(straight)
    (tmp_path / "log").unlink()
    play()
    assert not (tmp_path / "log").exists()


def test_a_journal_of_other_sampling_problems_or_weights_is_refused(tmp_path):
    options = {"modes": ["tools"], "journals": tmp_path / "j"}
    evaluate_suite(recipe(tmp_path, "12"), model(), **options)
    with pytest.raises(ValueError, match="sampling.top_p"):
        evaluate_suite(recipe(tmp_path, "12", top_p=0.6), model(), **options)
    with pytest.raises(ValueError, match="tasks"):
        evaluate_suite(recipe(tmp_path, "13"), model(), **options)
    other = dict(model().params)
    name = next(iter(other))
    leaf = {k: v + 1 for k, v in _leaves(other[name]).items()}
    changed = dataclasses.replace(model(), params={**other, name: leaf})
    with pytest.raises(ValueError, match="weights"):
        evaluate_suite(recipe(tmp_path, "12"), changed, **options)


def _leaves(tree):
    return tree if isinstance(tree, dict) else {"leaf": tree}


def test_the_fingerprint_sees_the_first_and_last_row_of_every_array():
    params = {"a": jnp.zeros((3, 5)), "b": jnp.zeros(()), "c": jnp.zeros((2, 2, 2))}
    before = weights_fingerprint(params)
    for changed in (
        {**params, "a": params["a"].at[2, 0].set(1.0)},
        {**params, "b": jnp.ones(())},
        {**params, "c": params["c"].at[0, 0, 1].set(1.0)},
    ):
        assert weights_fingerprint(changed) != before


def test_benchmarks_have_their_own_problems_verifier_and_sampling(tmp_path):
    tasks = recipe(tmp_path, "1234").config["eval_tasks"]
    words = tmp_path / "words.jsonl"
    words.write_text(json.dumps({"q": "Say two.", "a": "2"}) + "\n", "utf-8")
    benchmarks = {
        "digits": {"tasks": tasks, "problems": 3, "samples": 2},
        "words": {
            "tasks": {**tasks, "path": str(words)},
            "verifier": {"name": "short_answer_em", "extract": "boxed"},
            "samples": 4,
        },
    }
    built = recipe(tmp_path, "1234", benchmarks=benchmarks)
    seen = []
    done = evaluate_suite(
        built,
        model(),
        modes=["tools", "self_contained"],
        journals=tmp_path / "j",
        on_report=lambda label, report: seen.append(label),
    )
    labels = [f"{b}/{m}" for b in benchmarks for m in ("tools", "self_contained")]
    assert list(done) == seen == labels
    assert done["digits/tools"].estimates["avg@2"][0] == pytest.approx(1 / 3)
    assert done["words/tools"].estimates["avg@4"][0] == 0.25
    one = evaluate_suite(
        built, model(), modes=["tools"], journals=None, names=["words"]
    )
    assert list(one) == ["words/tools"]
    with pytest.raises(ValueError, match="wordz"):
        evaluate_suite(built, model(), modes=["tools"], journals=None, names=["wordz"])
    with pytest.raises(ValueError, match="tool; known|'tool'"):
        evaluate_suite(built, model(), modes=["tool"], journals=None)


@pytest.mark.parametrize(
    "spec, wrong",
    [
        ({"a b": {}}, "letters, digits"),
        ({"x": {}}, "x.tasks is missing"),
        ({"x": {"tasks": {"name": "word_problemz"}}}, "did you mean"),
        ({"x": {"tasks": {"name": "word_problems"}, "sample": 3}}, "samples"),
        ({"x": {"tasks": {"name": "word_problems"}, "runs": 0}}, "runs is 0"),
        (
            {"x": {"tasks": {"name": "word_problems"}, "verifier": {"name": "maths"}}},
            "did you mean 'math'",
        ),
    ],
)
def test_a_wrong_benchmark_stops_the_build(spec, wrong):
    config = quickstart.get_config("tiny")
    config.eval.benchmarks = spec
    with pytest.raises(ValueError, match=wrong):
        build_rl(config)


@pytest.mark.parametrize(
    "options, wrong", [({"maths": {}}, "maths"), ({"math": {"extrct": ""}}, "extrct")]
)
def test_the_options_of_by_task_are_checked_at_build(options, wrong):
    config = quickstart.get_config("tiny")
    config.verifier = {"name": "by_task", "options": options}
    with pytest.raises(ValueError, match=wrong):
        build_rl(config)


@pytest.mark.slow
def test_a_killed_evaluation_goes_on_without_repeating_a_trajectory(tmp_path):
    command = [
        *(sys.executable, "-m", "launch.evaluate"),
        "--config=configs/quickstart.py:tiny",
        "--config.eval_tasks.count=100",
        "--config.eval.problems=100",
        "--config.eval.samples=2",
        f"--out={tmp_path / 'eval.json'}",
    ]
    journal = tmp_path / "eval.json.journals" / "eval.tools.jsonl"

    def lines():
        return journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []

    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": ""},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while len(lines()) < 40 and process.poll() is None:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = lines()
    assert 40 <= len(before) < 200
    assert not (tmp_path / "eval.json").exists()
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "XLA_FLAGS": ""}, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    whole = lines()
    assert whole[: len(before)] == before
    keys = [tuple(json.loads(line)[0]) for line in whole[1:]]
    assert sorted(keys) == [(p, g) for p in range(100) for g in range(2)]
    numbers = json.loads((tmp_path / "eval.json").read_text())["tools"]
    assert np.shape(list(numbers["scores"].values())) == (100, 2)
