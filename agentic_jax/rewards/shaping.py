"""From correctness to reward: pure functions of a score and a trajectory."""

from collections.abc import Mapping
from typing import Any, Literal

from agentic_jax.config import bind
from agentic_jax.trajectory import Trajectory

Reading = Literal["code", "paper", "flat"]
Count = Literal["response", "policy"]


def outcome(score: float, trajectory: Trajectory) -> float:
    """The score itself, as rStar2 (arXiv:2508.20722) rewards: 1 right, 0 wrong."""
    _check_score(score, trajectory)
    return float(score)


def outcome_with_tool_bonus(
    score: float,
    trajectory: Trajectory,
    *,
    reading: Reading = "code",
    bonus: float = 0.1,
    max_bonus_calls: int | None = None,
) -> float:
    """Plus or minus 1 for the outcome, corrected by the number of tool calls.

    A score of 1 is right and any lower score wrong.

    Args:
        score: correctness in [0, 1].
        trajectory: whose calls count, whatever their status.
        reading: see tool_bonus_reward.
        bonus: reward per call.
        max_bonus_calls: calls beyond this many earn nothing; None counts all.

    Raises:
        ValueError: unknown reading, score outside [0, 1] or missing.

    Source: "Demystifying RL in Agentic Reasoning" (arXiv:2510.11701), section 2.2.
    """
    _check_score(score, trajectory)
    num_calls = len(trajectory.calls)
    if max_bonus_calls is not None:
        num_calls = min(num_calls, max_bonus_calls)
    return tool_bonus_reward(score >= 1.0, num_calls, reading=reading, bonus=bonus)


def tool_bonus_reward(
    correct: bool, num_calls: float, *, reading: Reading, bonus: float
) -> float:
    """The reward of an answer after n tool calls.

        code:   right 1,            wrong min(-0.6, -1 + bonus n)
        paper:  right 1 + bonus n,  wrong min(0, -1 + bonus n)
        flat:   right 1,            wrong -1

    Raises:
        ValueError: unknown reading.

    Source: arXiv:2510.11701, section 2.2, whose formula is incomplete as printed:
    "paper" is our reading of it, "code" is the authors' released code.
    """
    match reading, correct:
        case "code" | "flat", True:
            return 1.0
        case "paper", True:
            return 1.0 + bonus * num_calls
        case "code", False:
            return min(-0.6, -1.0 + bonus * num_calls)
        case "paper", False:
            return min(0.0, -1.0 + bonus * num_calls)
        case "flat", False:
            return -1.0
    raise ValueError(f"reading is {reading!r}; known: code, paper, flat")


def overlong_penalty(num_tokens: int, *, max_tokens: int, buffer_tokens: int) -> float:
    """Soft punishment of long responses, in [-1, 0].

        0                                        n <= max - buffer
        (max - buffer - n) / buffer              up to n = max
        -1                                       beyond

    Args:
        num_tokens: n, of the whole response.
        max_tokens: the trajectory's budget, L_max.
        buffer_tokens: where the slope begins before it, L_cache, in [1, max_tokens].

    Raises:
        ValueError: buffer_tokens is out of range.

    Source: DAPO (arXiv:2503.14476), eq. 13. Released code has no floor at -1.
    """
    if not 1 <= buffer_tokens <= max_tokens:
        raise ValueError(
            f"buffer_tokens is {buffer_tokens}; it must be in [1, {max_tokens}]"
        )
    excess = num_tokens - (max_tokens - buffer_tokens)
    return -min(max(excess, 0) / buffer_tokens, 1.0)


def outcome_with_tool_bonus_and_overlong(
    score: float,
    trajectory: Trajectory,
    *,
    max_tokens: int,
    buffer_tokens: int,
    reading: Reading = "code",
    bonus: float = 0.1,
    max_bonus_calls: int | None = None,
    count: Count = "response",
) -> float:
    """outcome_with_tool_bonus plus overlong_penalty: the reward of GRPO-TCR and SCR.

    Args:
        score: correctness in [0, 1].
        trajectory: whose calls and tokens count.
        max_tokens: as in overlong_penalty.
        buffer_tokens: as in overlong_penalty.
        reading: as in outcome_with_tool_bonus.
        bonus: as in outcome_with_tool_bonus.
        max_bonus_calls: as in outcome_with_tool_bonus.
        count: which tokens are long: "response" counts tool results too, "policy" only
            what was sampled.

    Raises:
        ValueError: unknown reading or count, or a number out of range.

    Source: arXiv:2510.11701, section 2.2.
    """
    reward = outcome_with_tool_bonus(
        score,
        trajectory,
        reading=reading,
        bonus=bonus,
        max_bonus_calls=max_bonus_calls,
    )
    return reward + overlong(
        score,
        trajectory,
        max_tokens=max_tokens,
        buffer_tokens=buffer_tokens,
        count=count,
    )


def overlong(
    score: float,
    trajectory: Trajectory,
    *,
    max_tokens: int,
    buffer_tokens: int,
    count: Count = "response",
) -> float:
    """overlong_penalty of a trajectory, whatever its score.

    Raises:
        ValueError: unknown count, or a number out of range.
    """
    counts = {
        "response": trajectory.num_response_tokens,
        "policy": trajectory.num_policy_tokens,
    }
    if count not in counts:
        raise ValueError(f"count is {count!r}; known: {', '.join(counts)}")
    return overlong_penalty(
        counts[count], max_tokens=max_tokens, buffer_tokens=buffer_tokens
    )


def summed(
    score: float, trajectory: Trajectory, *, terms: Mapping[str, Mapping[str, Any]]
) -> float:
    """The sum of other rewards.

    Args:
        score: correctness in [0, 1].
        trajectory: that each of them sees.
        terms: any key to {"name": a key of REWARDS or "module:function", options}.

    Raises:
        ValueError: an unknown name or option, or what a term raises.
    """
    return sum(bind(term, REWARDS)(score, trajectory) for term in terms.values())


def tool_weight(
    score: float,
    trajectory: Trajectory,
    *,
    weight: float,
    max_calls: int | None = None,
) -> float:
    """A weight for each tool call, right or wrong answer alike; below 0 to deter.

    Args:
        score: not looked at.
        trajectory: whose calls count, whatever their status.
        weight: reward per call.
        max_calls: calls beyond this many count for nothing; None counts all.

    Source: an intervention against calls for their own sake, which "Demystifying RL in
    Agentic Reasoning" (arXiv:2510.11701) leaves open.
    """
    num_calls = len(trajectory.calls)
    return weight * (num_calls if max_calls is None else min(num_calls, max_calls))


def reasoning_bonus(
    score: float, trajectory: Trajectory, *, bonus: float, max_tokens: int
) -> float:
    """A bonus for each token that the policy wrote in a turn before its first call.

    Args:
        score: not looked at.
        trajectory: turns without a call count for nothing.
        bonus: reward per token.
        max_tokens: of a turn, beyond which tokens earn nothing.

    Raises:
        ValueError: a turn with calls does not say where they stand.

    Source: as tool_weight; fewer and more deliberate calls are what arXiv:2510.11701,
    section 5, finds in good policies.
    """
    tokens = 0
    for turn in trajectory.turns:
        if turn.calls and not turn.call_spans:
            raise ValueError(
                f"a turn of task {trajectory.task.id} has calls, but no call_spans"
            )
        if turn.calls:
            tokens += min(turn.call_spans[0][0], max_tokens)
    return bonus * tokens


def call_cap(
    score: float, trajectory: Trajectory, *, max_calls: int, penalty: float
) -> float:
    """Minus the penalty, once, for more than max_calls calls; else 0.

    The option max_calls of a tool refuses such calls instead of punishing them.

    Args:
        score: not looked at.
        trajectory: whose calls count, whatever their status.
        max_calls: that are free.
        penalty: at least 0.
    """
    return -penalty if len(trajectory.calls) > max_calls else 0.0


REWARDS = {
    "outcome": outcome,
    "outcome_with_tool_bonus": outcome_with_tool_bonus,
    "outcome_with_tool_bonus_and_overlong": outcome_with_tool_bonus_and_overlong,
    "sum": summed,
    "overlong": overlong,
    "tool_weight": tool_weight,
    "reasoning_bonus": reasoning_bonus,
    "call_cap": call_cap,
}


def _check_score(score: float, trajectory: Trajectory) -> None:
    """Raises for a missing or impossible score; 0.0 is a score like any other."""
    if score is None or not 0.0 <= score <= 1.0:
        raise ValueError(
            f"score of task {trajectory.task.id} is {score}; it must be in [0, 1]"
            " (faulted samples have none and get no reward)"
        )
