import dataclasses

import numpy as np
import pytest

from agentic_jax.monitor import behavior
from agentic_jax.monitor.truth import warn
from agentic_jax.packing import pack_step
from agentic_jax.trajectory import Task
from tests.fakes import TASK, sample, trajectory, turn


def spanned(played, *spans):
    return dataclasses.replace(played, call_spans=spans)


# Turn 1: reasoning 2 tokens, call 1; turn 2: two calls, one token of reasoning; turn 3
# answers. Entropies 1, 3, 5 | 4, 0, 1 | 2, 2.
LONG = trajectory(
    [9],
    spanned(turn([1, 2, 3], [7], ["ok"]), (2, 3)),
    spanned(turn([1, 2, 3], [7], ["ok", "error"]), (1, 2), (2, 3)),
    turn([4, 5]),
)
LONG_ENTROPY = [0.0, 1, 3, 5, 99, 4, 0, 1, 99, 2, 2]
# One call at once, after which nothing was sampled any more.
CUT = trajectory([9], spanned(turn([1, 2], [7], ["ok"]), (0, 2)), stop="max_tokens")
PLAIN = trajectory([9], turn([4]))


def rounds():
    groups = [
        [sample([9], stop="fault", score=None)],
        [dataclasses.replace(sample([9]), trajectory=t) for t in (LONG, CUT, PLAIN)],
    ]
    step = pack_step(
        groups,
        num_updates=2,
        length=16,
        rows_multiple=1,
        rng=np.random.default_rng(0),
    )
    entropy = np.full(step.batch.tokens.shape, 99.0, np.float32)
    values = {3: LONG_ENTROPY, 1: [0.0, 0.5, 0.5, 99]}
    for p, group in enumerate(step.groups):
        for g, one in enumerate(group):
            if one.valid:
                row, segment = step.outcome.row[p, g], step.outcome.segment[p, g]
                here = step.batch.segment_ids[row] == segment
                turns = one.trajectory.turns
                found = values.get(len(turns)) if turns[0].calls else [0.0, 8.0]
                entropy[row, here] = found
    return behavior.rounds_of(step, entropy)


def test_entropy_is_told_apart_by_kind_of_token():
    got = behavior.entropy_stats(rounds())
    assert got["policy/entropy_before_call"] == pytest.approx((1 + 3) / 2)
    assert got["policy/entropy_call"] == pytest.approx((5 + 0 + 1 + 0.5 + 0.5) / 5)
    assert got["policy/entropy_after_tool"] == 4.0
    assert got["policy/entropy_final"] == pytest.approx((2 + 2 + 8) / 3)


def test_calls_that_lower_the_entropy_are_productive():
    """Means 3, 5/3, 2: the first call lowers it, the two of turn 2 raise it, and
    nothing follows the one of the cut trajectory: m/n is 1/3 and 0/1."""
    got = behavior.entropy_stats(rounds())
    assert got["tool/entropy_change_mean"] == pytest.approx((-4 / 3 + 2 / 3) / 3)
    assert got["tool/entropy_reducing_fraction"] == pytest.approx(1 / 4)
    assert got["tool/productive_calls_mean"] == pytest.approx(1 / 3)
    assert got["tool/productive_fraction_mean"] == pytest.approx(1 / 6)


def test_entropy_changes_have_ratios_and_no_value_without_a_turn_after():
    entropies = [np.array([1.0, 3.0]), np.array([1.0]), np.array([])]
    got = behavior.entropy_changes([1, 2, 0], entropies)
    assert got[0] == pytest.approx((-1.0, -0.5))
    assert got[1:] == [None, None]


def test_an_equal_entropy_is_not_productive():
    flat = [
        behavior.Round(turn([1], [7], ["ok"]), np.array([2.0])),
        behavior.Round(turn([1]), np.array([2.0])),
    ]
    assert behavior.entropy_stats([flat])["tool/productive_calls_mean"] == 0.0


def test_deliberation_compares_long_with_short_reasoning():
    """Reasoning of 2, 1 and 0 tokens: the median is 1, so turn 2's calls count as
    deliberative like turn 1's, and the cut trajectory's as reactive."""
    got = behavior.deliberation_stats(rounds())
    assert got["tool/reasoning_tokens_mean"] == 1.0
    assert got["tool/success_deliberative_fraction"] == pytest.approx(2 / 3)
    assert got["tool/success_reactive_fraction"] == 1.0
    assert got["tool/calls_per_1000_tokens"] == pytest.approx(1_000 * 4 / 11)
    assert got["rollout/first_turn_tokens_mean"] == 2.0  # (3 + 2 + 1) / 3
    assert got["rollout/later_turn_tokens_mean"] == 2.5  # (3 + 2) / 2


def test_groups_tell_pass_and_average_and_leave_faults_out():
    groups = [
        [sample([1], turn([2]), score=s) for s in (1.0, 0.0, 0.0)],
        [sample([1], turn([2]), score=0.5), sample([1], stop="fault", score=None)],
        [sample([1], stop="fault", score=None)],
    ]
    got = behavior.group_stats(groups)
    assert got["reward/avg@3"] == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert got["reward/pass@3"] == 0.5  # Half right is not solved.
    assert got["reward/pass_avg_gap"] == pytest.approx(0.5 - 5 / 12)


def test_scores_are_told_by_domain_and_bin():
    def of(score, domain, **extra):
        task = Task("t", TASK.messages, "4", domain, extra)
        return trajectory([1], turn([2]), score=score, task=task)

    got = behavior.label_stats(
        [of(1.0, "math", bin="hard"), of(0.0, "math"), of(0.5, "web/qa"), LONG]
        + [trajectory([1], stop="fault", score=None)]
    )
    assert got == pytest.approx(
        {
            "reward/score_domain_math": 2 / 3,
            "reward/score_bin_hard": 1.0,
            "reward/score_domain_web_qa": 0.5,
        }
    )


def test_tools_that_nobody_calls_any_more_are_an_alarm(caplog):
    quiet = [PLAIN] * 20
    assert behavior.extinction(quiet, has_tools=True) == {"tool/extinct": 1.0}
    assert behavior.extinction(quiet, has_tools=False) == {"tool/extinct": 0.0}
    assert behavior.extinction([LONG, *quiet[1:]], has_tools=True) == {
        "tool/extinct": 0.0  # 1 of 20 is the limit.
    }
    assert behavior.extinction([], has_tools=True) == {"tool/extinct": 0.0}
    warn({"tool/extinct": 1.0})
    assert "tool/extinct is 1, above 0" in caplog.text
    caplog.clear()
    warn({"tool/extinct": 0.0})
    assert not caplog.records


def test_nothing_at_all_gives_zeros():
    for got in (
        behavior.entropy_stats([]),
        behavior.deliberation_stats([]),
        behavior.group_stats([]),
    ):
        assert set(got.values()) == {0.0}
    assert behavior.label_stats([]) == {}
