"""Finished pieces of a long job on disk, so that a killed job goes on."""

import fcntl
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from absl import logging

from agentic_jax.config import changed_keys

Key = tuple[int, ...]


class Journal:
    """One JSON line a finished piece, appended as soon as it is done.

    The first line says what the pieces are of. A last line that a crash cut short is
    dropped, and its piece counts as not done. One process at a time may hold it.

    Args:
        path: of the file; made, with its directory, if it is missing.
        identity: nested plain JSON values on which the pieces depend.

    Raises:
        ValueError: the file holds pieces of something else, and what differs; or a line
            is malformed.
        OSError: another process holds it.
    """

    def __init__(self, path: pathlib.Path, identity: Mapping[str, Any]):
        self.path = pathlib.Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._offsets: dict[Key, int] = {}
        self._file = self.path.open("a+b")
        try:
            self._open(identity)
        except BaseException:
            self._file.close()
            raise

    def __contains__(self, key: Key) -> bool:
        """Whether the piece is done."""
        return key in self._offsets

    def __len__(self) -> int:
        """How many pieces are done."""
        return len(self._offsets)

    def keys_within(self, *limits: int) -> list[Key]:
        """Of what is done, ascending, each number of a key below its limit.

        A run that asks for less than the one before leaves the rest alone.
        """
        return sorted(
            key
            for key in self._offsets
            if all(number < limit for number, limit in zip(key, limits, strict=True))
        )

    def add(self, key: Key, record: Any) -> None:
        """Appends a piece; it is with the operating system when this returns.

        Raises:
            ValueError: it was added before.
        """
        if key in self._offsets:
            raise ValueError(f"piece {key} is in {self.path} already")
        self._offsets[key] = self._write([list(key), record])

    def read(self, key: Key) -> Any:
        """The record of a piece.

        Raises:
            KeyError: it is not done.
        """
        self._file.seek(self._offsets[key])
        return json.loads(self._file.readline())[1]

    def close(self) -> None:
        """Closes the file and lets another process have it."""
        self._file.close()

    def _write(self, value: Any) -> int:
        """Where the line went."""
        offset = self._file.seek(0, 2)
        line = json.dumps(value, separators=(",", ":")) + "\n"
        self._file.write(line.encode())
        self._file.flush()
        return offset

    def _open(self, identity: Mapping[str, Any]) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OSError(f"another process is writing {self.path}") from error
        self._file.seek(0)
        for number, line in enumerate(self._file, start=1):
            offset = self._file.tell() - len(line)
            if not line.endswith(b"\n"):
                logging.info("%s ends in a line cut short, which is dropped", self.path)
                self._file.truncate(offset)
                break
            try:
                if number == 1:
                    self._check(json.loads(line), identity)
                else:  # The record itself may be long.
                    key = json.loads(line[1 : line.index(b"]") + 1])
                    self._offsets[tuple(key)] = offset
            except json.JSONDecodeError as error:
                raise ValueError(f"{self.path}, line {number}: {error}") from error
        if self._file.seek(0, 2) == 0:
            self._write(dict(identity))

    def _check(self, stands: Any, identity: Mapping[str, Any]) -> None:
        wanted = json.loads(json.dumps(identity))
        lines = [
            f"  {key}: {old!r} -> {new!r}"
            for key, (old, new) in changed_keys(stands, wanted).items()
        ]
        if lines:
            raise ValueError(
                f"{self.path} was written with other settings; take another directory, "
                "or set these back:\n" + "\n".join(lines)
            )
