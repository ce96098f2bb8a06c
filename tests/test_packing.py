import dataclasses

import numpy as np
import pytest

from agentic_jax.packing import pack, pack_rows, pack_step
from tests.fakes import sample, trajectory, turn

A = trajectory([1, 2], turn([3, 4], [5], ["ok", "error"]), turn([6]))  # 6 tokens
B = trajectory([7], turn([8, 9]))  # 3 tokens
C = trajectory([10], turn([11]))  # 2 tokens


def packed(*trajectories, length=8, rows_multiple=1):
    return pack_rows(
        trajectories,
        prompt_ids=range(1, len(trajectories) + 1),
        length=length,
        rows_multiple=rows_multiple,
    )


def test_every_field_lies_where_its_token_lies():
    batch, row, segment = packed(A, B, C)
    assert (row, segment) == ([0, 1, 0], [1, 1, 2])
    np.testing.assert_array_equal(batch.tokens[0], [1, 2, 3, 4, 5, 6, 10, 11])
    np.testing.assert_array_equal(batch.positions[0], [0, 1, 2, 3, 4, 5, 0, 1])
    np.testing.assert_array_equal(batch.segment_ids[0], [1, 1, 1, 1, 1, 1, 2, 2])
    np.testing.assert_array_equal(batch.prompt_ids[0], [1, 1, 1, 1, 1, 1, 3, 3])
    np.testing.assert_array_equal(batch.turn_ids[0], [0, 0, 1, 1, 1, 2, 0, 1])
    np.testing.assert_array_equal(batch.turn_calls[0], [0, 0, 2, 2, 2, 0, 0, 0])
    np.testing.assert_array_equal(batch.mask[0], [0, 0, 1, 1, 0, 1, 0, 1])
    np.testing.assert_array_equal(
        batch.behavior_logprobs[0], [0, 0, -1, -2, 0, -1, 0, -1]
    )
    np.testing.assert_array_equal(batch.tokens[1], [7, 8, 9, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(batch.segment_ids[1], [1, 1, 1, 0, 0, 0, 0, 0])


def test_rows_are_padded_to_the_multiple():
    batch, _, _ = packed(A, B, rows_multiple=4)
    assert batch.tokens.shape == (4, 8)
    assert not batch.segment_ids[2:].any()


def test_every_token_of_many_trajectories_is_placed_once():
    rng = np.random.default_rng(0)
    many = [
        trajectory([1], turn(rng.integers(1, 99, size=n)))
        for n in rng.integers(1, 30, size=200)
    ]
    batch, row, segment = packed(*many, length=40)
    for t, r, s in zip(many, row, segment, strict=True):
        here = batch.segment_ids[r] == s
        np.testing.assert_array_equal(batch.tokens[r][here], t.token_ids)
    used = sum(len(t.token_ids) for t in many)
    assert (batch.segment_ids > 0).sum() == used
    assert batch.tokens.size / used < 1.15


def test_a_trajectory_longer_than_a_row_says_what_to_raise():
    with pytest.raises(ValueError, match="6 tokens, a row holds 5: raise batch.row"):
        packed(A, length=5)


def test_outcome_says_where_each_sample_lies_and_leaves_faults_out():
    lost = sample([1], turn([2]), stop="fault", score=None)
    groups = [[sample([1], turn([2, 3]), reward=0.5), lost], [sample([4], turn([5]))]]
    batch, outcome = pack(groups, length=8, rows_multiple=1)
    np.testing.assert_array_equal(outcome.valid, [[True, False], [True, False]])
    np.testing.assert_array_equal(outcome.reward, [[0.5, 0.0], [1.0, 0.0]])
    for p, g in ((0, 0), (1, 0)):
        here = batch.segment_ids[outcome.row[p, g]] == outcome.segment[p, g]
        ids = batch.tokens[outcome.row[p, g]][here]
        np.testing.assert_array_equal(ids, groups[p][g].trajectory.token_ids)
    assert outcome.segment[0, 1] == 0


def test_a_step_keeps_groups_whole_and_cuts_rows_evenly_into_updates():
    groups = [[sample([p], turn([p, p])) for _ in range(3)] for p in range(1, 7)]
    step = pack_step(
        groups,
        num_updates=3,
        length=4,
        rows_multiple=2,
        rng=np.random.default_rng(0),
    )
    rows = step.batch.tokens.shape[0] // 3
    assert step.num_updates == 3
    assert sorted(g[0].trajectory.token_ids[0] for g in step.groups) == list(
        range(1, 7)
    )
    for p, group in enumerate(step.groups):
        for g, s in enumerate(group):
            row = step.outcome.row[p, g]
            assert row // rows == p // 2  # Two whole groups an update.
            here = step.batch.segment_ids[row] == step.outcome.segment[p, g]
            ids = step.batch.tokens[row][here]
            np.testing.assert_array_equal(ids, s.trajectory.token_ids)
    for u in range(3):
        ids = step.batch.prompt_ids[u * rows : (u + 1) * rows]
        assert set(ids.flat) - {0} == {1, 2}


def test_few_row_counts_ever_occur():
    counts = set()
    for n in range(1, 60):
        groups = [[sample([1], turn([2, 3])) for _ in range(n)]]
        step = pack_step(
            groups,
            num_updates=1,
            length=4,
            rows_multiple=1,
            rng=np.random.default_rng(0),
        )
        counts.add(step.batch.tokens.shape[0])
    assert counts == {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}


def test_nothing_to_pack_is_an_error():
    with pytest.raises(ValueError, match="no sample to pack"):
        pack([[]], length=4, rows_multiple=1)


def branch(shared, *turns):
    return dataclasses.replace(trajectory([1, 2], *turns), shared_turns=shared)


def test_turns_that_branches_share_are_marked_in_all_but_the_first():
    head, tail = turn([3, 4], [5], ["ok"]), turn([6])
    parent = branch(0, head, tail)
    groups = [[parent, branch(1, head, turn([7])), branch(2, head, tail, turn([8]))]]
    batch, row, segment = pack_rows(
        groups[0], prompt_ids=[1, 1, 1], length=8, rows_multiple=1
    )
    shared = [
        batch.tokens[r][(batch.segment_ids[r] == s) & batch.shared_mask[r]].tolist()
        for r, s in zip(row, segment, strict=True)
    ]
    assert shared == [[], [3, 4], [3, 4, 6]]
    assert batch.mask[batch.shared_mask].all()


def test_of_turns_whose_owner_is_gone_the_first_branch_left_is_trained():
    head = turn([3, 4], [5], ["ok"])
    groups = [branch(1, head, turn([7])), branch(1, head, turn([8]))]
    batch, row, _ = pack_rows(groups, prompt_ids=[1, 1], length=8, rows_multiple=1)
    assert not batch.shared_mask[row[0]].any()
    assert batch.shared_mask[row[1]].sum() == 2
    # Of another prompt, or with other tokens, it is no owner.
    batch, _, _ = pack_rows(groups, prompt_ids=[1, 2], length=8, rows_multiple=1)
    assert not batch.shared_mask.any()
    other = [branch(0, turn([3, 9], [5], ["ok"])), groups[1]]
    batch, _, _ = pack_rows(other, prompt_ids=[1, 1], length=8, rows_multiple=1)
    assert not batch.shared_mask.any()


def test_call_markup_lies_where_it_was_written():
    call = dataclasses.replace(turn([3, 4, 6], [5], ["ok"]), call_spans=((1, 3),))
    batch, _, _ = packed(trajectory([1, 2], call, turn([6])))
    np.testing.assert_array_equal(batch.call_mask[0], [0, 0, 0, 1, 1, 0, 0, 0])
