import dataclasses
import pathlib

import numpy as np
import pytest

from agentic_jax.data.difficulty import (
    LABELS,
    distinct_ids,
    histogram,
    label_of,
    label_probabilities,
    match_histogram,
    reliability,
    solve_rate,
)
from tests.fakes import TASK


@pytest.mark.parametrize(
    "scores, label",
    [
        ([0] * 8, "unsolved"),
        ([1] + [0] * 7, "hard"),
        ([1] * 2 + [0] * 6, "hard"),  # 0.25 itself.
        ([1] * 3 + [0] * 5, "medium"),
        ([1] * 5 + [0] * 3, "medium"),
        ([1] * 6 + [0] * 2, "easy"),  # 0.75 itself.
        ([1] * 7 + [0], "easy"),
        ([1] * 8, "solved"),
        ([0.5, 0.0], "hard"),  # Partly right answers count in part.
    ],
)
def test_labels_have_the_papers_borders(scores, label):
    assert label_of(solve_rate(scores)) == label


def test_a_problem_without_a_scored_sample_has_no_rate():
    with pytest.raises(ValueError, match="at least one scored sample"):
        solve_rate([])


LABELLED = ["hard"] * 6 + ["unsolved"] * 5 + ["medium"] * 10 + ["easy"] * 4 + ["solved"]


def taken(target, count, seed=0):
    rng = np.random.default_rng(seed)
    numbers = match_histogram(LABELLED, target, count=count, rng=rng)
    return numbers, [LABELLED[i] for i in numbers]


def test_shares_are_of_what_has_a_signal():
    assert histogram(LABELLED) == {"hard": 0.3, "medium": 0.5, "easy": 0.2}
    assert histogram(["solved"]) == {"hard": 0.0, "medium": 0.0, "easy": 0.0}


def test_a_match_without_repeats_is_as_large_as_its_scarcest_bin_allows():
    numbers, labels = taken({"hard": 2, "medium": 1, "easy": 1}, count=0)
    # 6 hard are half: 12 in all, 3 medium and 3 easy.
    assert [labels.count(name) for name in ("hard", "medium", "easy")] == [6, 3, 3]
    assert len(set(numbers)) == 12 and numbers == sorted(numbers)
    assert taken({"medium": 1.0}, count=0)[1] == ["medium"] * 10


def test_a_match_of_a_given_size_repeats_where_a_bin_has_too_few():
    numbers, labels = taken({"hard": 0.2, "medium": 0.3, "easy": 0.5}, count=20)
    assert [labels.count(name) for name in ("hard", "medium", "easy")] == [4, 6, 10]
    assert sorted(np.unique(numbers[-10:], return_counts=True)[1]) == [2, 2, 3, 3]


def test_a_match_depends_on_the_seed_alone():
    target = {"medium": 0.5, "easy": 0.5}
    assert taken(target, 6) == taken(target, 6)
    assert taken(target, 6) != taken(target, 6, seed=1)


@pytest.mark.parametrize(
    "target, problem",
    [
        ({"solved": 1.0}, "target is .*; it gives shares of hard, medium, easy"),
        ({"hard": 0.0}, "not all 0"),
        ({}, "not all 0"),
        ({"hard": 1.5, "easy": -0.5}, "none below 0"),
    ],
)
def test_an_impossible_target_is_refused(target, problem):
    with pytest.raises(ValueError, match=problem):
        taken(target, 4)


def test_a_target_of_a_bin_without_problems_is_refused():
    with pytest.raises(ValueError, match="no problem is easy, .* wants 50%"):
        match_histogram(
            ["hard"], {"hard": 1, "easy": 1}, count=0, rng=np.random.default_rng(0)
        )


def test_repeated_problems_get_ids_of_their_own():
    other = dataclasses.replace(TASK, id="u")
    names = [task.id for task in distinct_ids([TASK, other, TASK, TASK])]
    assert names == ["t", "u", "t-again-1", "t-again-2"]


def test_label_probabilities_are_binomial():
    # Two samples at rate 1/4: 9/16 none, 6/16 one (rate 1/2), 1/16 both.
    likely = label_probabilities(0.25, k=2)
    assert likely == {
        **dict.fromkeys(LABELS, 0.0),
        **{"unsolved": 9 / 16, "medium": 6 / 16, "solved": 1 / 16},
    }
    # Four at rate 1/2: 1, 4, 6, 4, 1 of 16.
    assert label_probabilities(0.5, k=4) == {
        **{"unsolved": 1 / 16, "hard": 4 / 16, "medium": 6 / 16},
        **{"easy": 4 / 16, "solved": 1 / 16},
    }


def test_reliability_of_two_samples_under_a_uniform_prior():
    # Each count has probability 1/3. One right of two says medium, and the true rate
    # is then Beta(2, 2): the integral of 6 p (1 - p) from 1/4 to 3/4 is 11/16.
    told = reliability(k=2, alpha=1.0, beta=1.0)
    expected = (11 / 48, 5 / 48, 1 / 3, 1 / 3)
    np.testing.assert_allclose(dataclasses.astuple(told), expected, rtol=1e-12)


@pytest.mark.parametrize("alpha, beta", [(1.0, 1.0), (0.4, 0.8)])
def test_more_samples_tell_more(alpha, beta):
    told = [reliability(k=k, alpha=alpha, beta=beta) for k in (2, 4, 8, 16, 64)]
    right = [t.right for t in told]
    assert right == sorted(right) and right[-1] > 0.75
    for t in told:
        assert sum(dataclasses.astuple(t)) == pytest.approx(1.0)


def test_the_table_of_the_documentation_is_what_the_functions_say():
    text = (pathlib.Path(__file__).parents[2] / "docs" / "data.md").read_text("utf-8")
    table = text.partition("| k | right bin |")[2].partition("\n\n")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines()[2:]]
    assert [int(row[0]) for row in rows] == [2, 4, 8, 16, 32]
    for row in rows:
        k, *printed = map(float, row)
        expected = []
        for prior in (1.0, 0.5):
            told = reliability(k=int(k), alpha=prior, beta=prior)
            expected += [told.right, told.wrong, told.unsolved + told.solved]
        for rate in (0.05, 0.1, 0.25):
            expected.append(label_probabilities(rate, k=int(k))["unsolved"])
        np.testing.assert_allclose(printed, expected, atol=5e-4)
