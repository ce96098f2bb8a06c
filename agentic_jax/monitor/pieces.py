"""The text of each token of a trajectory, so that a trace can show token by token."""

import functools
from collections.abc import Callable, Sequence

BROKEN = "\ufffd"  # What decoding makes of bytes that are no whole character.


def make_pieces(
    decode: Callable[[Sequence[int]], str],
) -> Callable[[Sequence[int]], list[str]]:
    """Returns pieces(ids): one text per token, whose concatenation is decode(ids).

    A character that several tokens share belongs to the first of them and the others
    have "". Tokens are decoded after the first one, because some tokenizers drop a
    leading space at the start of a text.

    Args:
        decode: token ids to text, special tokens kept.

    Returns:
        A function that remembers the text of each id, so that its cost is one look-up a
        token, and a decoding more for each token that ends inside a character. Where
        pieces cannot be told apart, a run of them belongs to its first token.
    """

    @functools.cache
    def after(first: int, token: int) -> str:
        start = decode([first])
        if BROKEN in start:
            return decode([token])
        return decode([first, token])[len(start) :]

    def pieces(ids: Sequence[int]) -> list[str]:
        if not ids:
            return []
        alone = [decode(ids[:1]), *(after(ids[0], token) for token in ids[1:])]
        texts: list[str] = []
        while len(texts) < len(ids):
            start = end = len(texts)
            while end < len(ids) and BROKEN in alone[end]:
                end += 1
            texts += _shared(ids[start:end], alone[start:end], decode)
            texts += alone[end : end + 1]
        return _checked(texts, decode(ids))

    return pieces


def _shared(
    ids: Sequence[int], alone: Sequence[str], decode: Callable[[Sequence[int]], str]
) -> list[str]:
    """Pieces of tokens that each hold a part of a character, or broken bytes.

    A token goes on with the character before it just if the two decode to something
    else together than apart.
    """
    texts: list[str] = []
    start = 0
    for i, text in enumerate(alone):
        if i:
            before = "".join(texts[start:])
            together = decode(ids[start : i + 1])
            if together != before + text:
                texts[start:] = [together, *[""] * (i - start)]
                continue
        start = i
        texts.append(text)
    return _checked(texts, decode(ids)) if ids else []


def _checked(texts: list[str], whole: str) -> list[str]:
    """The pieces if they make up the whole; else all of it is the first one's."""
    if "".join(texts) == whole:
        return texts
    return [whole, *[""] * (len(texts) - 1)]
