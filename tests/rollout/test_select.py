import numpy as np
import pytest

from agentic_jax.rollout.select import (
    SELECTIONS,
    draw_probabilities,
    drop_uniform,
    error_ratio,
    format_penalty,
    keep_all,
    positives_to_keep,
    resample_indices,
    resample_on_correct,
)
from agentic_jax.trajectory import (
    CallRecord,
    Sample,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
)

TASK = Task("t", ({"role": "user", "content": "?"},), "1")


def sample(score, *, reward=None, statuses=(), text="<answer>1</answer>", fault=False):
    calls = tuple(
        CallRecord(ToolCall("python", {}), ToolResult("", status), 0.0)
        for status in statuses
    )
    ids = np.zeros(1, np.int32)
    turns = tuple(Turn(ids, np.zeros(1, np.float32), 0, (call,)) for call in calls)
    stop = "fault" if fault else "answer"
    score = None if fault else score
    trajectory = Trajectory(TASK, ids, turns, stop, score=score)
    return Sample(trajectory, score if reward is None else reward, text)


def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    "statuses, expected",
    [
        ((), 0.5),
        (("ok", "ok"), 0.0),
        (("error", "ok", "timeout", "bad_call"), 0.75),
        (("busy", "ok"), 0.0),  # a full queue is our fault
        (("busy",), 0.5),
    ],
)
def test_error_ratio_counts_statuses(statuses, expected):
    assert error_ratio(statuses) == expected


@pytest.mark.parametrize(
    "opened, closed, rounds, paper, code",
    [
        (0, 0, 2, 1.0, 1.0),
        (1, 1, 2, 0.0, 0.0),
        (3, 3, 4, 2 / 5, 2 / 4),
        (9, 9, 2, 1.0, 1.0),
        (2, 1, 2, 0.0, 1.0),  # one does not close
        (1, 1, 0, 0.0, 1.0),  # no tool call
    ],
)
def test_format_penalty_in_both_modes(opened, closed, rounds, paper, code):
    assert format_penalty(opened, closed, rounds, mode="paper") == pytest.approx(paper)
    assert format_penalty(opened, closed, rounds, mode="code") == pytest.approx(code)


def test_eight_named_samples_in_code_mode():
    rewards = [1, 0, 1, 1, 0, 1, 0, 1]
    penalties = [0.5, 0, 0.1, 0.9, 0, 0.1, 0, 2.0]
    # 5 of 8 positive: round(2.5) = 2 of 4; the cleanest are 2 and 5. First negatives.
    chosen = resample_indices(rewards, penalties, keep=4, mode="code", rng=rng())
    assert chosen == [1, 2, 4, 5]


@pytest.mark.parametrize("size", range(2, 21))
def test_every_keep_count_is_met_exactly_for_every_split(size):
    for positives in range(size + 1):
        rewards = [1.0] * positives + [0.0] * (size - positives)
        for keep in range(1, size + 1):
            for mode in ("code", "paper"):
                chosen = resample_indices(
                    rewards, [0.0] * size, keep=keep, mode=mode, rng=rng()
                )
                assert len(set(chosen)) == keep and chosen == sorted(chosen)


@pytest.mark.parametrize(
    "positives, negatives, keep, expected",
    [
        (8, 8, 8, 4),
        (1, 15, 8, 1),  # the minimum lifts 0 to the 1 there is
        (15, 1, 8, 7),
        (14, 2, 8, 6),  # two negatives stay
        (3, 15, 9, 2),  # an odd count: round(1.5) = 2, the rest 7
        (16, 0, 8, 8),
    ],
)
def test_shares_round_half_to_even_within_the_minima(
    positives, negatives, keep, expected
):
    minima = {"min_positive": 2, "min_negative": 2}
    assert positives_to_keep(positives, negatives, keep=keep, **minima) == expected


def test_paper_mode_draws_clean_positives_in_proportion():
    penalties = [1.0, 0.5, 1.0, 0.25]
    np.testing.assert_allclose(
        draw_probabilities(np.array(penalties)), [1 / 8, 2 / 8, 1 / 8, 4 / 8], rtol=1e-5
    )
    generator = np.random.default_rng(0)
    rewards = [1.0, 1.0, 1.0, 1.0, 0.0]
    first = [
        resample_indices(
            rewards,
            [*penalties, 0.0],
            keep=1,
            mode="paper",
            rng=generator,
            min_negative=0,
        )[0]
        for _ in range(4_000)
    ]
    counts = np.bincount(first, minlength=5) / 4_000
    np.testing.assert_allclose(counts, [1 / 8, 2 / 8, 1 / 8, 4 / 8, 0], atol=0.03)


def test_paper_mode_is_seeded():
    rewards, penalties = [1.0] * 8 + [0.0] * 8, list(np.linspace(0, 2, 16))
    options = {"keep": 8, "mode": "paper"}
    same = [resample_indices(rewards, penalties, rng=rng(), **options) for _ in "ab"]
    other = resample_indices(
        rewards, penalties, rng=np.random.default_rng(1), **options
    )
    assert same[0] == same[1] != other


def test_samples_are_kept_by_their_statuses_and_text():
    group = [
        sample(1.0, statuses=("error",)),
        sample(1.0, statuses=("ok",)),
        sample(0.0),
        sample(0.0),
        sample(0.0, fault=True),
    ]
    options = {"keep": 2, "mode": "code", "min_positive": 1, "min_negative": 1}
    kept = resample_on_correct(group, rng=rng(), **options)
    assert [group.index(s) for s in kept] == [1, 2]


def test_uniform_groups_are_dropped_by_score_not_by_reward():
    shaped = [sample(0.0, reward=-1.0), sample(0.0, reward=-0.6)]
    assert drop_uniform(shaped, rng=rng()) == []
    assert resample_on_correct(shaped, rng=rng(), keep=1, mode="code") == []
    mixed = [sample(0.0, reward=0.3), sample(1.0, reward=0.3), sample(0, fault=True)]
    assert drop_uniform(mixed, rng=rng()) == mixed
    assert drop_uniform([], rng=rng()) == []
    assert keep_all(mixed, rng=rng()) == mixed


def test_a_group_with_too_few_valid_samples_is_dropped():
    group = [sample(1.0), sample(0.0), sample(0, fault=True)]
    assert resample_on_correct(group, rng=rng(), keep=3, mode="paper") == []


def test_bad_options_are_named():
    with pytest.raises(ValueError, match="mode is 'soft'"):
        resample_indices([1.0], [0.0], keep=1, mode="soft", rng=rng())
    with pytest.raises(ValueError, match="keep is 0"):
        resample_indices([1.0], [0.0], keep=0, mode="code", rng=rng())
    group = [sample(1.0, text=None), sample(0.0, text=None)]
    with pytest.raises(ValueError, match="give each Sample its text"):
        SELECTIONS["resample_on_correct"](group, rng=rng(), keep=1, mode="code")
