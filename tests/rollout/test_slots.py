import numpy as np
import pytest

from agentic_jax.rollout.slots import Slots


def ids(*tokens):
    return np.array(tokens, np.int32)


def fill(slots, *, chunk=4):
    """Does what is to do; returns the copies and the prefilled positions by row."""
    copies, prefilled = [], {}
    while slots.missing():
        if done := slots.take_copies(8):
            copies += done
            continue
        lines = slots.take_lines(8, chunk=chunk)
        assert lines, "nothing can go on"
        for row, positions in lines:
            prefilled.setdefault(row, []).extend(positions.tolist())
    return copies, prefilled


@pytest.mark.parametrize("exact", [True, False])
def test_a_group_computes_its_prompt_once(exact):
    slots = Slots(rows=3, length=16, exact=exact)
    prompt = ids(5, 6, 7, 8, 9)
    rows = [slots.place(session, prompt) for session in "abc"]
    assert slots.take_copies(8) == []  # There is nothing to copy yet.
    copies, prefilled = fill(slots)
    assert prefilled == {rows[0]: [0, 1, 2, 3, 4]}
    assert copies == [(rows[0], rows[1]), (rows[0], rows[2])]


def test_a_session_keeps_its_row_and_what_it_holds():
    slots = Slots(rows=2, length=16, exact=True)
    row = slots.place("a", ids(1, 2, 3))
    fill(slots)
    slots.record(row, ids(1, 2, 3, 4, 5))
    assert slots.place("a", ids(1, 2, 3, 4, 5, 6, 7)) == row
    assert fill(slots) == ([], {row: [5, 6]})


def test_no_row_is_free_until_a_release():
    slots = Slots(rows=1, length=8, exact=True)
    slots.place("a", ids(1))
    assert slots.place("b", ids(2)) is None
    slots.release("a")
    slots.release("never seen")
    assert slots.place("b", ids(2)) == 0


def test_exact_never_shares_sampled_tokens_but_fast_does():
    context = ids(1, 2, 3, 4, 5, 6)
    for exact, copied in ((True, [0, 1, 2, 3]), (False, [])):
        slots = Slots(rows=2, length=8, exact=exact)
        row = slots.place("a", context[:2])
        fill(slots)
        slots.record(row, context)  # 3 4 5 6 are sampled.
        other = slots.place("b", context)
        copies, prefilled = fill(slots)
        assert copies == [(row, other)]
        assert prefilled.get(other, []) == [2 + i for i in copied]


def test_exact_does_not_copy_onto_a_session_that_holds_sampled_tokens():
    slots = Slots(rows=2, length=8, exact=True)
    context = ids(1, 2, 3, 4, 5, 6)
    own = slots.place("a", context[:2])
    fill(slots)
    slots.record(own, context[:4])
    slots.place("b", context)
    fill(slots)
    slots.place("a", context)  # b's 5 and 6 were computed on prefilled 3 and 4.
    assert fill(slots) == ([], {own: [4, 5]})


def test_exact_lines_end_at_multiples_of_the_chunk():
    slots = Slots(rows=1, length=16, exact=True)
    row = slots.place("a", ids(*range(3)))
    fill(slots)
    slots.place("a", ids(*range(10)))
    lines = [slots.take_lines(8, chunk=4)[0][1].tolist() for _ in range(3)]
    assert lines == [[3], [4, 5, 6, 7], [8, 9]] and row == 0
    np.testing.assert_array_equal(slots.tokens(0, np.arange(2, 5)), [2, 3, 4])


def test_a_free_row_is_continued_in_place():
    slots = Slots(rows=3, length=8, exact=True)
    row = slots.place("a", ids(1, 2, 3))
    fill(slots)
    slots.release("a")
    assert slots.place("b", ids(1, 2, 3, 4)) == row
    assert fill(slots) == ([], {row: [3]})


@pytest.mark.parametrize("exact", [True, False])
def test_a_free_row_that_others_may_continue_is_copied_instead(exact):
    slots = Slots(rows=2, length=8, exact=exact)
    row = slots.place("a", ids(1, 2, 3))
    fill(slots)
    slots.release("a")
    other = slots.place("b", ids(1, 2, 9))
    assert other != row
    assert fill(slots) == ([(row, other)], {other: [2]})


def test_exact_continues_a_free_row_up_to_its_first_sampled_token():
    slots = Slots(rows=2, length=8, exact=True)
    row = slots.place("a", ids(1, 2))
    fill(slots)
    slots.record(row, ids(1, 2, 3))  # 3 is sampled.
    slots.release("a")
    assert slots.place("b", ids(1, 2, 3, 4)) == row
    assert fill(slots) == ([], {row: [2, 3]})


def test_of_free_rows_the_oldest_is_overwritten():
    slots = Slots(rows=2, length=8, exact=True)
    rows = [slots.place(s, ids(t)) for s, t in (("a", 1), ("b", 2))]
    fill(slots)
    slots.release("b"), slots.release("a")
    assert slots.place("c", ids(3)) == rows[0]


def test_finishing_counts_as_use():
    slots = Slots(rows=2, length=8, exact=True)
    rows = [slots.place(s, ids(t)) for s, t in (("a", 1), ("b", 2))]
    fill(slots)
    slots.record(rows[0], ids(1, 5))
    slots.release("a"), slots.release("b")
    assert slots.place("c", ids(3)) == rows[1]


def test_a_free_row_with_the_prefix_is_taken_before_an_older_one():
    slots = Slots(rows=2, length=8, exact=True)
    rows = [slots.place(s, ids(t, t)) for s, t in (("a", 1), ("b", 2))]
    fill(slots)
    slots.release("a"), slots.release("b")
    assert slots.place("c", ids(2, 2, 3)) == rows[1]
    assert fill(slots) == ([], {rows[1]: [2]})


def test_a_session_that_starts_anew_is_fresh_again():
    slots = Slots(rows=2, length=8, exact=True)
    row = slots.place("a", ids(1, 2, 3, 4))
    fill(slots)
    slots.place("a", ids(1, 2, 9, 9, 9, 9))
    fill(slots)
    other = slots.place("b", ids(1, 2, 9, 9, 9, 9))
    assert fill(slots) == ([(row, other)], {})


def test_a_source_that_is_overwritten_first_is_not_copied():
    slots = Slots(rows=2, length=8, exact=True)
    old = slots.place("a", ids(1, 2, 3))
    fill(slots)
    new = slots.place("b", ids(1, 2, 3, 4))  # Is to copy a's row, but then
    assert slots.place("a", ids(9, 9)) == old  # a writes something else there.
    copies, prefilled = fill(slots)
    assert copies == [] and prefilled == {old: [0, 1], new: [0, 1, 2, 3]}


def test_forget_empties_rows_but_not_sessions():
    slots = Slots(rows=2, length=8, exact=True)
    row = slots.place("a", ids(1, 2))
    fill(slots)
    slots.forget()
    assert slots.place("a", ids(1, 2)) == row
    assert fill(slots) == ([], {row: [0, 1]})


def test_what_ends_before_it_is_filled_again_holds_nothing():
    slots = Slots(rows=2, length=8, exact=True)
    first, second = (slots.place(session, ids(1, 2, 3)) for session in "ab")
    fill(slots)
    slots.forget()
    for session in "ab":
        slots.place(session, ids(1, 2, 3))  # The second is to copy the first.
    slots.record(first, ids(1, 2, 3))
    slots.release("a")
    assert fill(slots) == ([], {second: [0, 1, 2]})


def test_one_token_prompts_need_nothing():
    slots = Slots(rows=1, length=8, exact=True)
    assert slots.place("a", ids()) == 0
    assert slots.missing() == []
