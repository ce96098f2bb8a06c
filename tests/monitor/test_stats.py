import pytest

from agentic_jax.monitor import stats
from tests.fakes import sample, trajectory, turn

USED = trajectory([1], turn([2, 3], [4, 5], ["ok", "timeout"]), turn([6]), score=1.0)
PLAIN = trajectory([1], turn([2]), score=0.0)
LOST = trajectory([1], stop="fault", score=None)


def test_tool_stats_count_calls_and_statuses_over_finished_trajectories():
    got = stats.tool_stats([USED, PLAIN, LOST])
    assert got["tool/calls_mean"] == 1.0
    assert got["tool/used_fraction"] == 0.5
    assert got["tool/success_fraction"] == 0.5
    assert got["tool/timeout_calls"] == 1.0
    assert got["tool/error_calls"] == 0.0  # Present although it is 0.


def test_rollout_stats_are_over_finished_trajectories():
    got = stats.rollout_stats([USED, PLAIN, LOST])
    assert got["rollout/response_tokens_mean"] == 3.0  # (5 + 1) / 2
    assert got["rollout/policy_tokens_mean"] == 2.0  # (3 + 1) / 2
    assert got["rollout/tokens_per_turn_mean"] == pytest.approx(4 / 3)
    assert got["rollout/stop_fault_fraction"] == pytest.approx(1 / 3)


def test_reward_stats_leave_faults_out():
    groups = [
        [sample([1], turn([2]), reward=1.0), sample([1], stop="fault", score=None)]
    ]
    got = stats.reward_stats(groups)
    assert got["reward/mean"] == 1.0
    assert got["reward/uniform_groups_fraction"] == 1.0


def test_nothing_at_all_gives_zeros_and_no_warning():
    assert stats.rollout_stats([])["rollout/turns_mean"] == 0.0
    assert stats.tool_stats([])["tool/success_fraction"] == 0.0
    assert stats.sampled_nll([]) == 0.0


def test_sampled_nll_is_the_mean_over_tokens():
    assert stats.sampled_nll([USED]) == pytest.approx((1 + 2 + 1) / 3)
