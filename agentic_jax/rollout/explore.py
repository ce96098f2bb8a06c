"""Exploration: which trajectories make up the group of a problem.

All functions of EXPLORATIONS take (play, size, seed, ...) and return `size`
trajectories of one problem:
    play: async (sample number, *turns) -> a finished trajectory; it goes on after the
        given turns of another one, whose tool results it reads.
    size: trajectories of the group.
    seed: numbers that a draw is keyed by, with the sample and the turn.
A group is a function of these and of what `play` returns, whatever ends first.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np

from agentic_jax.rollout.branching import (
    aepo_branch_score,
    aepo_branches,
    arpo_branch_score,
    arpo_branches,
    root_rollouts,
)
from agentic_jax.trajectory import Trajectory, Turn

PlaySample = Callable[..., Awaitable[Trajectory]]
Shared = Literal["once", "each"]
T = TypeVar("T")


async def independent(
    play: PlaySample, size: int, seed: Sequence[int]
) -> list[Trajectory]:
    """Every trajectory from the problem on, by itself."""
    return await together([play(g) for g in range(size)])


async def arpo(
    play: PlaySample,
    size: int,
    seed: Sequence[int],
    *,
    roots: int,
    beam: int,
    entropy_weight: float,
    branch_probability: float,
    shared: Shared,
) -> list[Trajectory]:
    """Some trajectories from the problem on, the others branched off after tool calls.

    Trajectories are played to their end; then they are looked at turn by turn, and
    branches are taken while there is room in the group. Branches may branch again.
    What room is left goes to trajectories from the problem on.

    Args:
        play, size, seed: see the module.
        roots: trajectories that start first, from 1 to size; 8 of 16 in the code.
        beam: at most beam - 1 branches of a trajectory at one turn; 2 in the code.
        entropy_weight: see branching.arpo_branch_score; 0.2 in the code.
        branch_probability: see branching.arpo_branches; 0.5 in the code.
        shared: "once" trains the turns that branches share in the first of them only,
            by that one's credit (of arpo_hard, the mean over all of them); "each" in
            every one, by its own.

    Raises:
        ValueError: an option is out of range, or the engine told of no entropy.

    Source: ARPO (arXiv:2507.19849). Its code plays all samples turn by turn in step, so
    that early turns of branches come before late ones of roots; here those of roots
    come first. The paper branches by another rule: see branching.arpo_branch_score.
    """
    if not 1 <= roots <= size:
        raise ValueError(f"explore.roots is {roots}; it must be from 1 to {size}")

    def branches(uniform: float, change: float, num_before: int) -> bool:
        score = arpo_branch_score(uniform, change, entropy_weight=entropy_weight)
        return arpo_branches(score, branch_probability=branch_probability)

    rule = Rule(branches, beam, shared, tuple(seed))
    return await _grow(play, await independent(play, roots, seed), size, rule)


async def aepo(
    play: PlaySample,
    size: int,
    seed: Sequence[int],
    *,
    beta: float,
    beam: int,
    entropy_weight: float,
    branch_probability: float,
    shared: Shared,
) -> list[Trajectory]:
    """As arpo, with a pilot that sets how many start from the problem.

    The pilot is the first trajectory. The more its entropy rises after tool calls, the
    more of the group is left to branches; without a tool call it is half. A path that
    branched at its last turns is less likely to branch again.

    Args:
        play, size, seed: see the module.
        beta: see branching.root_rollouts; 0.5 in the code.
        beam: see arpo.
        entropy_weight: see branching.aepo_branch_score; 0.2 in the code.
        branch_probability: see branching.aepo_branches; 0.5 in the code.
        shared: see arpo.

    Raises:
        ValueError: as arpo.

    Source: AEPO (arXiv:2510.14545) and a public copy of its code.
    """

    def branches(uniform: float, change: float, num_before: int) -> bool:
        score = aepo_branch_score(
            uniform, change, num_before, entropy_weight=entropy_weight
        )
        return aepo_branches(score, branch_probability=branch_probability)

    rule = Rule(branches, beam, shared, tuple(seed))
    pilot = await play(0)
    entropies = [_entropy(turn) for turn in pilot.turns] or [0.0]
    after_tools = entropies[1:] or entropies
    roots = root_rollouts(size, entropies[0], float(np.mean(after_tools)), beta=beta)
    others = await together([play(g) for g in range(1, roots)])
    return await _grow(play, [pilot, *others], size, rule)


EXPLORATIONS = {"independent": independent, "arpo": arpo, "aepo": aepo}


@dataclass(frozen=True)
class Rule:
    """How branches are taken.

    Attributes:
        branches: (a draw from [0, 1), dH, branches in a row before) -> whether a path
            branches at a turn.
        beam: at most beam - 1 branches of a trajectory at one turn; 1 never branches.
        shared: "once" or "each", see arpo.
        seed: numbers that draws are keyed by, with the sample and the turn.

    Raises:
        ValueError: beam or shared is none of these.
    """

    branches: Callable[[float, float, int], bool]
    beam: int
    shared: Shared
    seed: tuple[int, ...]

    def __post_init__(self) -> None:
        """Checks the options."""
        if self.beam < 1 or self.shared not in ("once", "each"):
            raise ValueError(
                f"explore.beam is {self.beam}, shared {self.shared!r}; beam must be at "
                "least 1 and shared 'once' or 'each'"
            )


@dataclass(frozen=True)
class Fork:
    """Where a trajectory branches.

    Attributes:
        sample: number of the trajectory in its group.
        turn: the first one that the branch does not share with it, at least 1.
        num_consecutive: how many branches in a row there are on the path, this one too.
    """

    sample: int
    turn: int
    num_consecutive: int


def forks(
    trajectory: Trajectory,
    sample: int,
    rule: Rule,
    *,
    first_turn: int = 1,
    num_consecutive: int = 0,
) -> list[Fork]:
    """Where a trajectory branches, beam - 1 times at each such turn; a fault nowhere.

    Args:
        trajectory: its turns have entropies.
        sample: its number.
        rule: decides.
        first_turn: turns before it are another trajectory's, and were looked at there.
        num_consecutive: branches in a row that led to first_turn.

    Raises:
        ValueError: a turn without an entropy.
    """
    found: list[Fork] = []
    turns = trajectory.turns
    if trajectory.stop == "fault":
        return found
    for k in range(first_turn, len(turns)):
        uniform = float(np.random.default_rng([*rule.seed, sample, k]).random())
        change = _entropy(turns[k]) - _entropy(turns[0])
        if rule.branches(uniform, change, num_consecutive):
            num_consecutive += 1
            found += [Fork(sample, k, num_consecutive)] * (rule.beam - 1)
        else:
            num_consecutive = 0
    return found


async def together(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """What they return, in order, run at the same time.

    Raises:
        Exception: the first that one of them raises, after the others are cancelled.
    """
    try:
        async with asyncio.TaskGroup() as running:
            tasks = [running.create_task(coroutine) for coroutine in coroutines]
    except* Exception as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def _grow(
    play: PlaySample, group: list[Trajectory], size: int, rule: Rule
) -> list[Trajectory]:
    """The group, filled up with waves of branches, then from the problem on."""
    found = [f for g, t in enumerate(group) for f in forks(t, g, rule)]
    while found and len(group) < size:
        found.sort(key=lambda fork: (fork.turn, fork.sample))
        taken = found[: size - len(group)]
        numbered = list(enumerate(taken, start=len(group)))
        group = [
            *group,
            *await together([_branch(play, group, g, f, rule) for g, f in numbered]),
        ]
        found = [
            again
            for g, fork in numbered
            for again in forks(
                group[g],
                g,
                rule,
                first_turn=fork.turn + 1,
                num_consecutive=fork.num_consecutive,
            )
        ]
    return [*group, *await together([play(g) for g in range(len(group), size)])]


async def _branch(
    play: PlaySample, group: Sequence[Trajectory], sample: int, fork: Fork, rule: Rule
) -> Trajectory:
    """Trajectory number `sample`, which goes on from a fork of the group."""
    trajectory = await play(sample, *group[fork.sample].turns[: fork.turn])
    if rule.shared == "each":
        return trajectory
    return dataclasses.replace(trajectory, shared_turns=fork.turn)


def _entropy(turn: Turn) -> float:
    if turn.entropy is None:
        raise ValueError(
            "branching needs the entropy of each turn's first tokens: set "
            "config.rollout.top_logprobs = 10"
        )
    return turn.entropy
