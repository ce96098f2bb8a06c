import asyncio
import dataclasses

import numpy as np
import pytest

from agentic_jax.rollout.collect import collect
from agentic_jax.rollout.explore import Fork, Rule, aepo, arpo, forks
from tests.fakes import trajectory, turn

ARPO = {"roots": 2, "beam": 2, "entropy_weight": 0.0, "branch_probability": 1.0}
AEPO = {"beta": 0.5, "beam": 2, "entropy_weight": 0.0, "branch_probability": 0.0}


def player(num_turns=3, entropies=(1.0, 2.0, 3.0), delays=None):
    """Plays turns whose one token says sample and turn, and notes what was asked."""
    asked = []

    async def play(g, *after):
        asked.append((g, len(after)))
        for _ in range(delays[g] if delays else 0):
            await asyncio.sleep(0)
        own = [
            dataclasses.replace(turn([10 * g + k], [99], ["ok"]), entropy=entropies[k])
            for k in range(len(after), num_turns)
        ]
        return trajectory([1], *after, *own)

    return play, asked


def tokens(group):
    return [[int(t.token_ids[0]) for t in one.turns] for one in group]


def test_branches_share_their_parents_turns_and_fill_the_group():
    play, asked = player()
    group = asyncio.run(arpo(play, 5, [0], **ARPO, shared="once"))
    # Both roots branch at turn 1 first, then the first root at turn 2: 5 are full.
    assert asked == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2)]
    assert tokens(group) == [
        [0, 1, 2],
        [10, 11, 12],
        [0, 21, 22],
        [10, 31, 32],
        [0, 1, 42],
    ]
    assert [t.shared_turns for t in group] == [0, 0, 1, 1, 2]


def test_branches_branch_again_and_what_is_left_starts_from_the_problem():
    play, asked = player(num_turns=2)
    options = {**ARPO, "roots": 1}
    group = asyncio.run(arpo(play, 4, [0], **options, shared="each"))
    # One fork of the root at turn 1; its branch has no later turn to fork at.
    assert asked == [(0, 0), (1, 1), (2, 0), (3, 0)]
    assert [t.shared_turns for t in group] == [0, 0, 0, 0]
    play, asked = player(num_turns=3)
    asyncio.run(arpo(play, 5, [0], **options, shared="once"))
    assert asked == [(0, 0), (1, 1), (2, 2), (3, 2), (4, 0)]


def test_a_group_does_not_depend_on_what_ends_first():
    options = {**ARPO, "branch_probability": 0.5, "roots": 3}
    groups = []
    for delays in ([0] * 9, [9, 0, 5, 1, 8, 2, 7, 3, 6]):
        play, _ = player(delays=delays)
        groups.append(asyncio.run(arpo(play, 9, [4, 2], **options, shared="once")))
    assert tokens(groups[0]) == tokens(groups[1])
    play, _ = player()
    other = asyncio.run(arpo(play, 9, [4, 3], **options, shared="once"))
    assert tokens(other) != tokens(groups[0])


def test_arpo_branches_where_the_entropy_rose():
    seen = []

    def branches(uniform, change, num_before):
        seen.append((change, num_before))
        return change > 0.5

    one = asyncio.run(player(5, (1.0, 2.0, 3.0, 1.0, 1.0))[0](0))
    rule = Rule(branches, 3, "once", (0,))
    assert forks(one, 7, rule) == [Fork(7, 1, 1)] * 2 + [Fork(7, 2, 2)] * 2
    # A turn without a branch ends the row of them.
    assert seen == [(1.0, 0), (2.0, 1), (0.0, 2), (0.0, 0)]
    seen.clear()
    forks(one, 7, rule, first_turn=4, num_consecutive=2)
    assert seen == [(0.0, 2)]
    assert forks(dataclasses.replace(one, stop="fault"), 7, rule) == []


@pytest.mark.parametrize(
    "entropies, roots",
    # int(6 sigmoid(0.5 x)) + 1: x = 0 gives 4, x = 100 gives 6, x = -100 gives 1.
    [((1.0, 1.0, 1.0), 4), ((100.0, 0.0, 0.0), 6), ((0.0, 100.0, 100.0), 1)],
)
def test_aepos_pilot_sets_how_many_start_from_the_problem(entropies, roots):
    play, asked = player(entropies=entropies)
    asyncio.run(aepo(play, 6, [0], **AEPO, shared="once"))
    assert asked[0] == (0, 0)
    first_branch = next((i for i, (_, after) in enumerate(asked) if after), 6)
    assert first_branch == roots


def test_aepo_without_a_tool_call_plays_from_the_problem():
    play, asked = player(num_turns=1)
    group = asyncio.run(aepo(play, 4, [0], **AEPO, shared="once"))
    assert asked == [(g, 0) for g in range(4)] and len(group) == 4


@pytest.mark.parametrize(
    "change, says",
    [
        ({"roots": 9}, "explore.roots is 9; it must be from 1 to 4"),
        ({"beam": 0}, "explore.beam is 0"),
        ({"shared": "twice"}, "shared 'twice'"),
    ],
)
def test_options_out_of_range_are_refused(change, says):
    with pytest.raises(ValueError, match=says):
        asyncio.run(arpo(player()[0], 4, [0], **{**ARPO, "shared": "once", **change}))


def test_an_engine_without_entropies_is_told_of_the_option():
    play, _ = player(entropies=(None, None, None))
    with pytest.raises(ValueError, match="set config.rollout.top_logprobs = 10"):
        asyncio.run(arpo(play, 4, [0], **ARPO, shared="once"))


def test_collect_explores_each_problem_with_draws_of_its_own():
    uniforms = {}

    async def explore(play, size, seed):
        uniforms[seed] = np.random.default_rng(seed).random()
        first = await play(0)
        return [first, await play(1, *first.turns)]

    async def play(task, p, g, *after):
        return trajectory([p + 1], *after, turn([g]))

    groups = asyncio.run(
        collect("ab", play, group_size=2, concurrency=1, explore=explore, seed=[5, 6])
    )
    assert list(uniforms) == [(5, 6, 0), (5, 6, 1)]
    assert tokens(groups[0]) == [[0], [0, 1]]
