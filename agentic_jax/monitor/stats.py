"""Metrics of a step, pure: trajectories or NumPy arrays in, a flat dict out."""

from collections import Counter
from collections.abc import Sequence
from typing import get_args

import numpy as np

from agentic_jax.trajectory import CallStatus, Sample, Stop, Trajectory


def mean(values: Sequence[float]) -> float:
    """The mean, 0 of nothing: a metric that is absent cannot be plotted."""
    return float(np.mean(values)) if len(values) else 0.0


def reward_stats(groups: Sequence[Sequence[Sample]]) -> dict[str, float]:
    """Reward and score over the valid samples of all groups."""
    valid = [[s for s in group if s.valid] for group in groups]
    rewards = [s.reward for group in valid for s in group]
    scores = [[s.trajectory.score or 0.0 for s in group] for group in valid]
    uniform = [max(s) == min(s) for s in scores if s]
    return {
        "reward/mean": mean(rewards),
        "reward/std": float(np.std(rewards)) if rewards else 0.0,
        "reward/score_mean": mean([x for s in scores for x in s]),
        "reward/solved_groups_fraction": mean([max(s) > 0 for s in scores if s]),
        "reward/uniform_groups_fraction": mean(uniform),
    }


def rollout_stats(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Lengths, turns and stop reasons over trajectories; faults only in their rate."""
    finished = [t for t in trajectories if t.stop != "fault"]
    stops = Counter(t.stop for t in trajectories)
    rounds = [len(turn.token_ids) for t in finished for turn in t.turns]
    return {
        "rollout/trajectories": float(len(trajectories)),
        "rollout/response_tokens_mean": mean([t.num_response_tokens for t in finished]),
        "rollout/response_tokens_max": float(
            max((t.num_response_tokens for t in finished), default=0)
        ),
        "rollout/policy_tokens_mean": mean([t.num_policy_tokens for t in finished]),
        "rollout/tokens_per_turn_mean": mean(rounds),
        "rollout/turns_mean": mean([len(t.turns) for t in finished]),
        "rollout/shared_turns_mean": mean([t.shared_turns for t in finished]),
        **{
            f"rollout/stop_{stop}_fraction": stops[stop] / max(len(trajectories), 1)
            for stop in get_args(Stop)
        },
    }


def tool_stats(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Calls per trajectory, the share of trajectories that call, and statuses."""
    finished = [t for t in trajectories if t.stop != "fault"]
    statuses = Counter(c.result.status for t in finished for c in t.calls)
    calls = sum(statuses.values())
    return {
        "tool/calls_mean": calls / max(len(finished), 1),
        "tool/used_fraction": mean([bool(t.calls) for t in finished]),
        "tool/success_fraction": statuses["ok"] / max(calls, 1),
        **{f"tool/{s}_calls": float(statuses[s]) for s in get_args(CallStatus)},
    }


def staleness_stats(
    trajectories: Sequence[Trajectory], *, version: int
) -> dict[str, float]:
    """How many updates older than `version` the weights were that sampled.

    Each trajectory counts by its oldest turn. rollout/mixed_fraction is the share
    whose turns were sampled by several versions.
    """
    versions = [[turn.weight_version for turn in t.turns] for t in trajectories]
    ages = [version - min(v) for v in versions if v]
    return {
        "rollout/staleness_mean": mean(ages),
        "rollout/staleness_max": float(max(ages, default=0)),
        "rollout/mixed_fraction": mean([len(set(v)) > 1 for v in versions if v]),
    }


def sampled_nll(trajectories: Sequence[Trajectory]) -> float:
    """Mean negative log-probability of the sampled tokens, nats.

    Over many samples at temperature 1 its expectation is the policy's mean token
    entropy, so it needs no second pass.
    """
    logprobs = [turn.logprobs for t in trajectories for turn in t.turns]
    return -mean(np.concatenate(logprobs)) if logprobs else 0.0
