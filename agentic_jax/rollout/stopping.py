"""Where a stop string ends a sequence of sampled tokens."""

from collections.abc import Callable, Sequence


def tokens_to_stop(
    token_ids: Sequence[int],
    stop_strings: Sequence[str],
    decode: Callable[[Sequence[int]], str],
    *,
    checked: int,
) -> int | None:
    """How many tokens to keep: up to the first that completes a stop string.

    Args:
        token_ids: sampled tokens; a stop string in the prompt does not count.
        stop_strings: not empty; at least one character each.
        decode: token ids to text. Every token gives at least one byte.
        checked: leading tokens that are known to complete none.

    Returns:
        A number in (checked, len(token_ids)], or None if no string is complete.
    """
    # A character has at most 4 bytes, so a string that ends in a new token starts here.
    start = max(0, checked - 4 * max(len(string) for string in stop_strings))

    def complete(end: int) -> bool:
        text = decode(token_ids[start:end])
        return any(string in text for string in stop_strings)

    if not complete(len(token_ids)):
        return None
    return next(n for n in range(checked + 1, len(token_ids) + 1) if complete(n))
