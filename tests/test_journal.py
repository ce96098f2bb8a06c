import contextlib

import pytest

from agentic_jax.journal import Journal

IDENTITY = {"seed": 0, "model": {"path": "a"}}


def filled(path, keys=((0, 1), (0, 0))):
    journal = Journal(path, IDENTITY)
    for key in keys:
        journal.add(key, {"text": f"[{key}]\u2028"})
    journal.close()


def test_what_was_added_is_there_when_it_is_opened_again(tmp_path):
    path = tmp_path / "new" / "journal.jsonl"
    filled(path)
    journal = Journal(path, IDENTITY)
    assert journal.keys_within(9, 9) == [(0, 0), (0, 1)]
    assert journal.keys_within(1, 1) == [(0, 0)]
    assert (0, 0) in journal and (1, 0) not in journal
    journal.add((1, 0), [1])
    assert journal.read((0, 0)) == {"text": "[(0, 0)]\u2028"}
    assert journal.read((1, 0)) == [1]
    assert len(journal) == 3
    with pytest.raises(ValueError, match=r"piece \(1, 0\) is in .* already"):
        journal.add((1, 0), [1])
    journal.close()


@pytest.mark.parametrize("cut", range(1, 25))
def test_a_line_cut_short_at_any_byte_is_done_again(tmp_path, cut):
    path = tmp_path / "journal.jsonl"
    filled(path)
    whole = path.read_bytes()
    assert len(whole.splitlines()[-1]) > 25
    path.write_bytes(whole[:-cut])
    journal = Journal(path, IDENTITY)
    assert journal.keys_within(9, 9) == [(0, 1)]
    journal.add((0, 0), {"text": "[(0, 0)]\u2028"})
    journal.close()
    assert path.read_bytes() == whole


def test_a_first_line_cut_short_is_written_anew(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"seed"')
    filled(path)
    with contextlib.closing(Journal(path, IDENTITY)) as journal:
        assert journal.keys_within(9, 9) == [(0, 0), (0, 1)]


def test_pieces_of_something_else_are_refused_by_what_differs(tmp_path):
    path = tmp_path / "journal.jsonl"
    filled(path)
    with pytest.raises(ValueError, match="back:\n  model.path: 'a' -> 'b'$"):
        Journal(path, {"seed": 0, "model": {"path": "b"}})


def test_two_at_a_time_are_refused(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, IDENTITY)
    with pytest.raises(OSError, match="another process is writing"):
        Journal(path, IDENTITY)
    journal.close()
    Journal(path, IDENTITY).close()


def test_a_malformed_line_is_named(tmp_path):
    path = tmp_path / "journal.jsonl"
    filled(path)
    path.write_bytes(path.read_bytes() + b"[[0,2,]\n")
    with pytest.raises(ValueError, match="journal.jsonl, line 4: "):
        Journal(path, IDENTITY)
