import dataclasses

import pytest

from agentic_jax.evaluation.benchmark import report, summary, table
from tests.fakes import trajectory, turn

TEXTS = {1: "so \\boxed{4}", 2: "\\boxed{ 4 }", 3: "\\boxed{5}", 4: "no answer"}


def decode(ids):
    return TEXTS[int(ids[0])]


def group(*pairs):
    return [trajectory([9], turn([i]), score=score) for i, score in pairs]


GROUPS = [
    group((1, 1.0), (2, 1.0), (3, 0.0), (4, 0.0)),  # 2 of 4; the majority says 4
    group((3, 0.0), (3, 0.0), (1, 1.0), (4, 0.0)),  # 1 of 4; the majority says 5
    group((4, 0.0), (4, 0.0), (4, 0.0), (4, 0.0)),
]


def test_estimates_are_means_over_problems():
    done = report(GROUPS, decode=decode, seed=0)
    value = {name: estimate[0] for name, estimate in done.estimates.items()}
    assert value["avg@4"] == pytest.approx((0.5 + 0.25 + 0.0) / 3)
    assert value["pass@4"] == pytest.approx(2 / 3)
    assert value["maj@4"] == pytest.approx(1 / 3)
    assert done.average == value["avg@4"]


def test_every_estimate_lies_in_its_interval_and_the_seed_decides_it():
    done = report(GROUPS, decode=decode, seed=0)
    for value, low, high in done.estimates.values():
        assert low <= value <= high
    assert done.estimates == report(GROUPS, decode=decode, seed=0).estimates


def test_no_right_answer_is_not_certainty():
    """0 of 3, one sample each: Wilson's upper end is z^2 / (n + z^2)."""
    wrong = [[dataclasses.replace(group[0], score=0.0)] for group in GROUPS]
    estimate = report(wrong, decode=decode, seed=0).estimates["avg@1"]
    assert estimate == pytest.approx((0.0, 0.0, 1.96**2 / (3 + 1.96**2)), abs=1e-4)


def test_metrics_are_flat_and_in_one_area():
    metrics = report(GROUPS, decode=decode, seed=0).metrics()
    assert all(name.startswith("eval/") for name in metrics)
    assert metrics["eval/avg@4_low"] <= metrics["eval/avg@4"]
    assert metrics["eval/tool_calls_mean"] == 0.0


def test_summary_has_what_a_reader_looks_for():
    done = report(GROUPS, decode=decode, seed=0)
    numbers = summary(done)
    assert {"avg@4", "ci95", "pass@4", "maj@4", "tool_success"} <= numbers.keys()
    assert numbers["problems"] == 3
    assert "avg@4 0.250" in table({"x": done})


def test_a_fault_counts_as_wrong_and_is_reported():
    lost = dataclasses.replace(GROUPS[0][0], stop="fault", score=None)
    done = report([[lost, *GROUPS[0][1:]]], decode=decode, seed=0)
    assert done.average == 0.25
    assert done.details["rollout/stop_fault_fraction"] == 0.25
