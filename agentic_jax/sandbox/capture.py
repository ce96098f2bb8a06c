"""Keeps the head and the tail of a stream in bounded memory."""

from collections import deque


class Capture:
    """Collects bytes and forgets the middle.

    Args:
        max_bytes: kept in all; half of it head, half tail.
    """

    def __init__(self, max_bytes: int):
        self._half = max_bytes // 2
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self.total_bytes = 0

    def add(self, data: bytes) -> None:
        """Appends what was read."""
        self.total_bytes += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail.append(data)
            self._tail_bytes += len(data)
            while self._tail_bytes - len(self._tail[0]) >= self._half:
                self._tail_bytes -= len(self._tail.popleft())

    def text(self) -> str:
        """What is kept as text, with the length of the cut in words."""
        head, tail = bytes(self._head), b"".join(self._tail)
        tail = tail[max(0, len(tail) - self._half) :]
        cut = self.total_bytes - len(head) - len(tail)
        if not cut:
            return (head + tail).decode(errors="replace")
        return (
            head.decode(errors="replace")
            + f"\n[... {cut} bytes cut ...]\n"
            + tail.decode(errors="replace")
        )


def cut_middle(text: str, max_chars: int) -> str:
    """Keeps the first and last max_chars // 2 characters and says how many it cut."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    cut = len(text) - 2 * half
    return f"{text[:half]}\n[... {cut} characters cut ...]\n{text[len(text) - half :]}"
