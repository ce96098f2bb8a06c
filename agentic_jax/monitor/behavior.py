"""How the policy reasons and uses its tools in a step, as metrics on the host."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentic_jax.monitor.stats import mean
from agentic_jax.packing import Step
from agentic_jax.trajectory import Sample, Trajectory, Turn

EXTINCT = 0.05  # Below this share of trajectories that call, tool use has died out.


@dataclass(frozen=True)
class Round:
    """A turn with what the trainer says of it.

    Attributes:
        turn: as played.
        entropy: [n] nats at each sampled token.
    """

    turn: Turn
    entropy: np.ndarray

    @property
    def in_call(self) -> np.ndarray:
        """[n] bool: the token is part of a call."""
        mask = np.zeros(len(self.entropy), bool)
        for start, end in self.turn.call_spans:
            mask[start:end] = True
        return mask

    @property
    def reasoning_tokens(self) -> int:
        """Sampled tokens before the first call; all of them without one."""
        return min(
            (start for start, _ in self.turn.call_spans), default=len(self.entropy)
        )


def rounds_of(step: Step, entropy: np.ndarray) -> list[list[Round]]:
    """The rounds of every packed trajectory.

    Args:
        step: packed samples.
        entropy: [B, T] nats per token of the same rows, NumPy.
    """
    found = []
    for p, group in enumerate(step.groups):
        for g, sample in enumerate(group):
            if not step.outcome.valid[p, g]:
                continue
            row = step.outcome.row[p, g]
            here = step.batch.segment_ids[row] == step.outcome.segment[p, g]
            found.append(_rounds(sample.trajectory, entropy[row][here]))
    return found


def entropy_changes(
    calls: Sequence[int], entropies: Sequence[np.ndarray]
) -> list[tuple[float, float] | None]:
    """What each call of one trajectory did to the entropy.

        dH_k = H_{k+1} - H_k,  ratio_k = dH_k / (H_k + 1e-8)

    H_k is the mean over the sampled tokens of turn k, call markup included.

    Args:
        calls: how many each turn made.
        entropies: of each turn, [n] nats at its sampled tokens.

    Returns:
        (dH, ratio) for each call in order; calls of one turn share theirs. None where
        there is no sampled token on one side, as after the last turn.

    Source: TEPO (arXiv:2602.02050), eq. 4-5 and section 3.
    """
    changes: list[tuple[float, float] | None] = []
    for k, count in enumerate(calls):
        after = entropies[k + 1] if k + 1 < len(calls) else ()
        change = None
        if len(entropies[k]) and len(after):
            before = float(np.mean(entropies[k]))
            difference = float(np.mean(after)) - before
            change = difference, difference / (before + 1e-8)
        changes += [change] * count
    return changes


def entropy_stats(rounds: Sequence[Sequence[Round]]) -> dict[str, float]:
    """Mean entropy of each kind of token, and what calls do to it.

    Args:
        rounds: of each trajectory.

    Returns:
        policy/entropy_before_call (reasoning of a first turn that calls),
        policy/entropy_call (its markup), policy/entropy_after_tool (reasoning of later
        turns that call again) and policy/entropy_final (turns without calls), nats;
        tool/entropy_change_mean over the calls that a sampled token follows, nats;
        tool/entropy_reducing_fraction, of all calls: m / n over the step;
        tool/productive_calls_mean, m of a trajectory, and
        tool/productive_fraction_mean, m / n over the trajectories that call.
    """
    kinds: dict[str, list[np.ndarray]] = defaultdict(list)
    changes: list[list[tuple[float, float] | None]] = []
    for trajectory in rounds:
        for k, r in enumerate(trajectory):
            if not r.turn.calls:
                kinds["final"].append(r.entropy)
                continue
            kind = "after_tool" if k else "before_call"
            kinds[kind].append(r.entropy[~r.in_call])
            kinds["call"].append(r.entropy[r.in_call])
        made = [len(r.turn.calls) for r in trajectory]
        changes.append(entropy_changes(made, [r.entropy for r in trajectory]))
    productive = [sum(c is not None and c[0] < 0 for c in cs) for cs in changes]
    calls = [len(cs) for cs in changes]
    return {
        **{
            f"policy/entropy_{kind}": mean(np.concatenate(kinds[kind]))
            if kinds[kind]
            else 0.0
            for kind in ("before_call", "call", "after_tool", "final")
        },
        "tool/entropy_change_mean": mean([c[0] for cs in changes for c in cs if c]),
        "tool/entropy_reducing_fraction": sum(productive) / max(sum(calls), 1),
        "tool/productive_calls_mean": mean(productive),
        "tool/productive_fraction_mean": mean(
            [m / n for m, n in zip(productive, calls, strict=True) if n]
        ),
    }


def deliberation_stats(rounds: Sequence[Sequence[Round]]) -> dict[str, float]:
    """Whether the policy thinks long and calls seldom, or the other way round.

    Args:
        rounds: of each trajectory.

    Returns:
        rollout/first_turn_tokens_mean and rollout/later_turn_tokens_mean, sampled;
        tool/reasoning_tokens_mean before the first call of turns that call;
        tool/calls_per_1000_tokens, sampled ones;
        tool/success_deliberative_fraction and tool/success_reactive_fraction: calls
        that ended well in turns with at least, and with less than, the median of
        reasoning tokens of this step's turns that call.

    Source: arXiv:2510.11701, deliberative and reactive modes.
    """
    every = [r for trajectory in rounds for r in trajectory]
    tokens = sum(len(r.entropy) for r in every)
    calling = [r for r in every if r.turn.calls]
    lengths = [r.reasoning_tokens for r in calling]
    median = float(np.median(lengths)) if lengths else 0.0
    successes: dict[bool, list[bool]] = {True: [], False: []}
    for r in calling:
        successes[r.reasoning_tokens >= median] += [
            c.result.status == "ok" for c in r.turn.calls
        ]
    calls = sum(len(r.turn.calls) for r in calling)
    return {
        "rollout/first_turn_tokens_mean": mean(
            [len(t[0].entropy) for t in rounds if t]
        ),
        "rollout/later_turn_tokens_mean": mean(
            [len(r.entropy) for t in rounds for r in t[1:]]
        ),
        "tool/reasoning_tokens_mean": mean(lengths),
        "tool/calls_per_1000_tokens": 1_000.0 * calls / max(tokens, 1),
        "tool/success_deliberative_fraction": mean(successes[True]),
        "tool/success_reactive_fraction": mean(successes[False]),
    }


def group_stats(groups: Sequence[Sequence[Sample]]) -> dict[str, float]:
    """What the groups of training say of pass@k, k being the largest group's size.

    Args:
        groups: samples of one problem each; faults are left out, and a group that lost
            some to them counts with those that are left.

    Returns:
        reward/avg@k, reward/pass@k (a score of 1 among the group) and their difference
        reward/pass_avg_gap, which closes as a policy gets sure.
    """
    k = max((len(group) for group in groups), default=0)
    scores = [[s.trajectory.score or 0.0 for s in g if s.valid] for g in groups]
    averages = [mean(row) for row in scores if row]
    solved = [max(row) >= 1.0 for row in scores if row]
    return {
        f"reward/avg@{k}": mean(averages),
        f"reward/pass@{k}": mean(solved),
        "reward/pass_avg_gap": mean(solved) - mean(averages),
    }


def label_stats(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """reward/score_domain_NAME and, for tasks with extra["bin"], reward/score_bin_NAME.

    Means over the finished trajectories of each domain and difficulty bin.
    """
    scores: dict[str, list[float]] = defaultdict(list)
    for t in trajectories:
        if t.stop == "fault":
            continue
        scores[f"domain_{t.task.domain}"].append(t.score or 0.0)
        if "bin" in t.task.extra:
            scores[f"bin_{t.task.extra['bin']}"].append(t.score or 0.0)
    return {
        f"reward/score_{re.sub(r'[^0-9A-Za-z_-]', '_', label)}": mean(values)
        for label, values in sorted(scores.items())
    }


def extinction(
    trajectories: Sequence[Trajectory], *, has_tools: bool
) -> dict[str, float]:
    """tool/extinct: 1 if there are tools and hardly a trajectory calls one, else 0.

    The limit is EXTINCT of the finished trajectories.

    Source: arXiv:2510.11701: long chain-of-thought models come to avoid their tools.
    """
    finished = [t for t in trajectories if t.stop != "fault"]
    used = mean([bool(t.calls) for t in finished])
    return {"tool/extinct": float(has_tools and bool(finished) and used < EXTINCT)}


def _rounds(trajectory: Trajectory, entropy: np.ndarray) -> list[Round]:
    rounds, start = [], len(trajectory.prompt_token_ids)
    for turn in trajectory.turns:
        end = start + len(turn.token_ids)
        rounds.append(Round(turn, entropy[start:end]))
        start = end + len(turn.result_token_ids)
    return rounds
