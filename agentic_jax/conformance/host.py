"""The contract of the slots that take trajectories: `select` and `reward`."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from agentic_jax.trajectory import (
    CallRecord,
    CallStatus,
    Sample,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
)

TASK = Task("t", ({"role": "user", "content": "2 + 2?"},), "4")
LARGEST = 9


def check_select(select: Callable) -> Iterator[tuple[str, str]]:
    """(property, problem) of (group, *, rng) -> samples kept."""
    groups = _groups()

    def kept(group: Sequence[Sample], seed: int = 0) -> list[Sample]:
        return select(group, rng=np.random.default_rng(seed))

    before = [list(g) for g in groups]
    problem = _tried(lambda: [kept(g) for g in groups])
    yield "every group size", problem
    if problem:
        return  # The rest asks what it keeps.
    yield (
        "samples of the group, in order",
        _first(map(_misplaced, groups, map(kept, groups))),
    )
    yield (
        "group untouched",
        "" if _same(before, groups) else "it was changed in place",
    )
    yield (
        "decided by the seed",
        ""
        if all(_same(kept(g, s), kept(g, s)) for g in groups for s in range(5))
        else "two calls with equal generators keep different samples",
    )
    yield (
        "no memory of other groups",
        ""
        if _same([kept(g) for g in groups], [kept(g) for g in groups[::-1]][::-1])
        else "what is kept of a group depends on the groups before it",
    )
    yield "faults decide nothing", _first(_moved_by_faults(kept, g) for g in groups)


def check_reward(reward: Callable) -> Iterator[tuple[str, str]]:
    """(property, problem) of (score, trajectory) -> reward."""
    cases = [
        (score, replace(t, score=score)) for score in (0.0, 0.5, 1.0) for t in _played()
    ]
    problem = _tried(lambda: [reward(*case) for case in cases])
    yield "every trajectory", problem
    if problem:
        return  # The rest asks what it gives.
    values = [reward(*case) for case in cases]
    odd = [v for v in values if not isinstance(v, int | float) or not math.isfinite(v)]
    yield "a finite number", f"it gives {odd[0]!r}" if odd else ""
    again = [reward(*case) for case in cases[::-1]][::-1]
    yield (
        "repeatable",
        "" if again == values else "the same trajectory earns something else later",
    )
    noisy = [(score, _with_other_logprobs(t)) for score, t in cases]
    yield (
        "blind to the engine's rounding",
        ""
        if [reward(*case) for case in noisy] == values
        else "it depends on the engine's log-probabilities",
    )


def _played() -> list[Trajectory]:
    """Without a turn, without a call, with each status, long, and cut off."""
    statuses: tuple[tuple[CallStatus, ...], ...] = (
        (),
        ("ok",),
        ("error", "timeout"),
        ("bad_call", "ok", "busy"),
    )
    played = [_trajectory(s, tokens=n) for s in statuses for n in (3, 40)]
    cut = replace(played[-1], stop="max_tokens")
    return [replace(played[0], turns=()), cut, *played]


def _trajectory(statuses: Sequence[CallStatus], *, tokens: int) -> Trajectory:
    call = ToolCall("python", {"code": "print(4)"})
    ids = np.arange(1, tokens + 1, dtype=np.int32)
    logprobs = np.full(tokens, -0.5, np.float32)
    turns = [
        Turn(
            token_ids=ids,
            logprobs=logprobs,
            weight_version=0,
            calls=(CallRecord(call, ToolResult("4", s), 0.1),),
            result_token_ids=ids[:2],
            call_spans=((1, 3),),
        )
        for s in statuses
    ]
    turns.append(Turn(ids, logprobs, 0))
    return Trajectory(TASK, ids[:2], tuple(turns), "answer", 0.0)


def _with_other_logprobs(trajectory: Trajectory) -> Trajectory:
    turns = (replace(t, logprobs=t.logprobs - 0.01) for t in trajectory.turns)
    return replace(trajectory, turns=tuple(turns))


def _groups() -> list[list[Sample]]:
    """Groups of every size from none on: mixed, all right, all wrong, with faults."""
    played = _played()
    rng = np.random.default_rng(0)
    groups = []
    for size in range(LARGEST + 1):
        for right in ("mixed", "all", "none"):
            scores = {"all": np.ones, "none": np.zeros}.get(right, rng.random)(size)
            groups.append(
                [
                    _sample(played[int(i)], float(score > 0.5))
                    for i, score in zip(
                        rng.integers(len(played), size=size), scores, strict=True
                    )
                ]
            )
    for group in groups[::2]:
        if len(group) > 2:
            lost = replace(group[1].trajectory, stop="fault", score=None)
            group[1] = Sample(lost, 0.0, "")
    return groups


def _sample(trajectory: Trajectory, score: float) -> Sample:
    text = "<answer>4</answer>" if len(trajectory.turns) < 3 else "four"
    return Sample(replace(trajectory, score=score), score, text)


def _misplaced(group: Sequence[Sample], kept: Sequence[Sample]) -> str:
    places = [[x is s for x in group].index(True) for s in kept if _is_in(s, group)]
    if len(places) < len(kept):
        return "it gives a sample that is not in the group"
    if sorted(set(places)) != places:
        return f"it gives the samples {places}: twice, or out of order"
    return ""


def _moved_by_faults(kept: Callable, group: Sequence[Sample]) -> str:
    """The reward of a fault must not change which valid samples are kept."""
    other = [s if s.valid else replace(s, reward=1e9) for s in group]
    chosen = [[s for s in kept(g) if s.valid] for g in (group, other)]
    return "" if _same(*chosen) else "the reward of a fault moves the choice"


def _is_in(sample: Sample, group: Sequence[Sample]) -> bool:
    return any(x is sample for x in group)


def _same(a: Sequence, b: Sequence) -> bool:
    """Whether two (nested) lists hold the very same samples."""
    if len(a) != len(b):
        return False
    return all(
        _same(x, y) if isinstance(x, list) else x is y
        for x, y in zip(a, b, strict=True)
    )


def _tried(action: Callable[[], object]) -> str:
    try:
        action()
    except Exception as error:  # Whatever it is, it is what is wanted here.
        return f"{type(error).__name__}: {error}"
    return ""


def _first(problems: Iterator[str]) -> str:
    return next((p for p in problems if p), "")


HOST_CHECKS = {"select": check_select, "reward": check_reward}
