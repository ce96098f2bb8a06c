import asyncio
import importlib
import pathlib
from types import SimpleNamespace

import numpy as np
import pytest

from agentic_jax.data.word_problems import word_problems
from agentic_jax.recipe import build_rl, build_sft
from agentic_jax.sweep import seeded
from agentic_jax.training import rl
from agentic_jax.trajectory import CallRecord, ToolCall, ToolResult
from benchmarks.studies import entropy_of_calls, failed_calls, table
from configs.studies import deliberation, diversity, resampling, tools

FILES = sorted((pathlib.Path(diversity.__file__).parent).glob("[a-z]*.py"))
STUDIES = [f.stem for f in FILES if "def get_config" in f.read_text("utf-8")]
SUPERVISED = ("start", "stitching")


def _config(study, variant):
    return importlib.import_module(f"configs.studies.{study}").get_config(variant)


def _variants(study):
    module = importlib.import_module(f"configs.studies.{study}")
    return [*getattr(module, "_ARMS", {}), "tiny"]


@pytest.mark.parametrize("study", STUDIES)
def test_every_arm_builds(study):
    build = build_sft if study in SUPERVISED else build_rl
    for variant in _variants(study):
        build(seeded(_config(study, variant), 1, keys=["seed"]))
    importlib.import_module(f"configs.studies.{study}").get_config()
    with pytest.raises(ValueError, match="does not exist"):
        _config(study, "no_such_arm")


@pytest.mark.slow
@pytest.mark.parametrize("study", sorted(set(STUDIES) - set(SUPERVISED)))
def test_every_study_runs_at_tiny_size(study, tmp_path):
    config = _config(study, "tiny")
    config.eval.every = 2
    rl.train(build_rl(config), workdir=tmp_path)


def _call(tool, code):
    return asyncio.run(tool.run(code=code))


@pytest.mark.parametrize(
    "code, text, status",
    [
        ("print(12*34)", "408", "ok"),
        (" print(7 - 9)", "-2", "ok"),
        ("prin(12*34)", "name 'prin' is not defined", "error"),
        ("print(12*34", "'(' was never closed", "error"),
        ("print(2**9999)", "TypeError", "error"),
        ("print(a*2)", "TypeError", "error"),
        ("12*34", "TypeError", "error"),
    ],
)
def test_the_calculator_prints_products_and_says_what_python_would(code, text, status):
    result = _call(tools.calculator(), code)
    assert result.status == status and text in result.text


def test_calls_of_the_noisy_calculator_fail_at_its_rate():
    tool = tools.noisy_calculator(failure_rate=0.3, seed=0)
    results = [_call(tool, "print(2*3)") for _ in range(400)]
    failed = [r for r in results if r.status == "error"]
    assert 80 < len(failed) < 160  # 120 expected, a standard deviation is 9.
    assert {r.text for r in results} - {failed[0].text} == {"6"}
    assert _call(tools.useless_calculator(), "print(2*3)").text == "No output."


def _record(status):
    call = ToolCall("python", {"code": "print(1)"})
    return CallRecord(call, ToolResult("", status), 0.0)


def _played(score, *turns):
    """Turns as (tokens before the first call, statuses of the calls)."""
    return SimpleNamespace(
        score=score,
        calls=[_record(s) for _, statuses in turns for s in statuses],
        turns=[
            SimpleNamespace(call_spans=((before, before + 5),) if statuses else ())
            for before, statuses in turns
        ],
    )


@pytest.mark.parametrize(
    "score, turns, expected",
    [
        (1.0, [(3, ["ok"]), (0, [])], 1 - 0.05 + 3 * 0.01),
        (0.0, [(3, ["ok"]), (9, ["error"])], -1 - 0.1 + 8 * 0.01),  # 12, cut at 8.
        (0.5, [(0, [])], -1.0),  # Half right is wrong.
    ],
)
def test_deliberation_adds_calls_and_tokens_before_them(score, turns, expected):
    reward = deliberation.outcome_and_deliberation(
        score,
        _played(score, *turns),
        call_weight=-0.05,
        token_bonus=0.01,
        most_tokens=8,
    )
    assert reward == pytest.approx(expected)


def test_half_of_a_mixed_group_is_kept_at_random_and_none_of_a_uniform_one():
    def group(*scores):
        return [
            SimpleNamespace(valid=True, trajectory=SimpleNamespace(score=s, task=None))
            for s in scores
        ]

    rng = np.random.default_rng(0)
    mixed = group(1.0, 0.0, 0.0, 1.0)
    kept = [resampling.keep_at_random(mixed, rng=rng, keep=2) for _ in range(50)]
    assert {len(k) for k in kept} == {2}
    assert len({tuple(map(id, k)) for k in kept}) == 6  # Every pair, in order.
    assert resampling.keep_at_random(group(1.0, 1.0), rng=rng, keep=2) == []


def test_every_problem_is_of_one_kind_and_all_kinds_occur():
    tasks = word_problems(split="train", count=300, seed=1, digits=(2, 2))
    assert {diversity._kind(t) for t in tasks} == set(diversity.KINDS)
    narrow = diversity.stories(count=20, kinds=["truck", "reads"])
    assert len(narrow) == 20
    assert {diversity._kind(t) for t in narrow} == {"truck", "reads"}


def test_failed_calls_are_counted_apart_for_right_and_wrong_answers():
    found = failed_calls(
        [
            _played(1.0, (0, ["ok"]), (0, ["error"])),
            _played(1.0, (0, ["ok"])),
            _played(0.0, (0, [])),
        ]
    )
    assert found == {
        "right/calls_mean": 1.5,
        "right/failed_calls_fraction": pytest.approx(1 / 3),
        "wrong/calls_mean": 0.0,
    }


def test_a_call_lowers_entropy_if_the_next_turn_has_less():
    def row(entropies, calls):
        turns = [{"calls": [0] * n} for n in calls]
        ids = [t for t, values in enumerate(entropies) for _ in values]
        flat = [e for values in entropies for e in values]
        tokens = {"mask": [0] + [1] * len(flat), "turn": [0, *ids]}
        return {"tokens": {**tokens, "entropy": [9.0, *flat]}, "turns": turns}

    found = entropy_of_calls(
        [
            row([[1.0, 3.0], [1.0], [4.0]], [1, 1, 0]),  # 2 to 1, 1 to 4.
            row([[1.0]], [1]),  # No turn after it.
            row([[1.0]], [0]),
        ]
    )
    assert found == {"calls_mean": 1.0, "change_mean": 1.0, "reducing_fraction": 0.5}
    assert entropy_of_calls([row([[1.0]], [0])]) == {"calls_mean": 0.0}


def test_the_table_has_a_change_for_all_but_the_first_arm():
    one = {"mean": 0.5, "low": 0.25, "high": 0.75, "change": None}
    summary = {"a": {"x": one}, "b": {"x": {**one, "change": [0.1, None, None]}}}
    assert table(summary, ["x", "y"]).splitlines()[2:] == [
        "| a | 0.500 [0.250, 0.750] | - |",
        "| b | 0.500 [0.250, 0.750] | - |",
    ]
