import pytest

from agentic_jax.chat.tokenizer import train_tokenizer
from agentic_jax.monitor.pieces import make_pieces

BYTES = train_tokenizer([], vocab_size=263)


def decode(ids):
    return BYTES.decode(list(ids), clean_up_tokenization_spaces=False)


def ids_of(data):
    return [BYTES.convert_tokens_to_ids(letter) for letter in letters(data)]


def letters(data):
    """The stand-in letters of bytes: printable ones are themselves."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in kept]
    names = {b: chr(b) for b in kept} | {b: chr(256 + i) for i, b in enumerate(others)}
    return [names[b] for b in data]


@pytest.mark.parametrize(
    "data, expected",
    [
        (b"ab", ["a", "b"]),
        ("é".encode(), ["é", ""]),
        ("a🙂b".encode(), ["a", "🙂", "", "", "", "b"]),
        ("你好".encode(), ["你", "", "", "好", "", ""]),
        (b"\xe4x", ["\ufffd", "x"]),  # Cut short by a letter.
        (b"\xff\xfe", ["\ufffd", "\ufffd"]),  # Never part of any character.
        (b"\xe4\xbd", ["\ufffd", ""]),  # Cut short by the end.
        (b"", []),
    ],
)
def test_characters_that_tokens_share_belong_to_the_first(data, expected):
    pieces = make_pieces(decode)(ids_of(data))
    assert pieces == expected
    assert "".join(pieces) == decode(ids_of(data))


def test_a_space_that_only_the_first_token_loses_is_kept_elsewhere():
    words = [" The", " cat"]

    def decode_words(ids):
        return "".join(words[i] for i in ids).removeprefix(" ")

    assert make_pieces(decode_words)([0, 1, 0]) == ["The", " cat", " The"]


def test_bytes_that_do_not_merge_step_by_step_are_one_piece():
    def decode_fallback(ids):  # Broken bytes give one mark each, as SentencePiece does.
        try:
            return bytes(ids).decode()
        except UnicodeDecodeError:
            return "".join(chr(i) if i < 128 else "\ufffd" for i in ids)

    pieces = make_pieces(decode_fallback)([65, *"你".encode(), 66])
    assert pieces == ["A", "你", "", "", "B"]
