"""The reading end of one output stream of a running call."""

import asyncio
import os
from collections.abc import Callable

from agentic_jax.sandbox.capture import Capture

_CHUNK = 1 << 16


class Stream:
    """A pipe that is drained as it fills.

    Args:
        max_bytes: kept, head and tail.
        max_drained: bytes after which `on_flood` is called, once.
        on_flood: stops the writer.
    """

    def __init__(
        self, *, max_bytes: int, max_drained: int, on_flood: Callable[[], None]
    ):
        self._loop = asyncio.get_running_loop()
        self._read_end, self.write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self.write_end, True)
        self._capture = Capture(max_bytes)
        self._max_bytes, self._max_drained = max_bytes, max_drained
        self._on_flood = on_flood
        self._open = True
        self._loop.add_reader(self._read_end, self._read)

    def close_write_end(self) -> None:
        """To be called once the child holds its own copy."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def take(self) -> str:
        """Reads what has been written so far and returns all of it since last time."""
        while self._open and self._read():
            pass
        text = self._capture.text()
        self._capture = Capture(self._max_bytes)
        return text

    def close(self) -> None:
        """Closes both ends."""
        self.close_write_end()
        self._stop()

    def _read(self) -> bool:
        """Takes one chunk; False when nothing is left for now."""
        try:
            data = os.read(self._read_end, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._stop()
            return False
        before = self._capture.total_bytes
        self._capture.add(data)
        if before <= self._max_drained < self._capture.total_bytes:
            self._on_flood()
        return True

    def _stop(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._read_end)
            os.close(self._read_end)
