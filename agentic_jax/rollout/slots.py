"""Which row of a cache holds which tokens, and what must still be computed."""

from dataclasses import dataclass

import numpy as np


@dataclass
class Row:
    """One row of the cache.

    Attributes:
        session: its owner; None if it is free. What a free row holds can be copied.
        planned: tokens that it holds once it is filled.
        done: tokens that it holds now.
        fresh: leading tokens, of those planned, that were computed by prefill on top
            of nothing but such tokens: whoever prefills the same ones gets the same
            bits. Sampled tokens are not fresh.
        source: row to copy from as soon as that one holds `shared` tokens.
        shared: how many tokens that copy brings.
        last_used: a counter; the longer ago, the sooner a free row is overwritten.
    """

    session: str | None = None
    planned: int = 0
    done: int = 0
    fresh: int = 0
    source: int | None = None
    shared: int = 0
    last_used: int = 0


class Slots:
    """The tokens behind every row of a cache. Sessions own rows until released.

    Args:
        rows: of the cache.
        length: positions of each.
        exact: reuse only what recomputation would give bit for bit: a session's own
            tokens, and other rows' fresh ones. Otherwise every equal prefix.
    """

    def __init__(self, *, rows: int, length: int, exact: bool):
        self._rows = [Row() for _ in range(rows)]
        self._tokens = np.full((rows, length), -1, np.int32)
        self._row_of: dict[str, int] = {}
        self._exact = exact
        self._clock = 0

    def place(self, session: str, token_ids: np.ndarray) -> int | None:
        """The row that is to hold token_ids [n], or None if none is free.

        What it holds of them already is kept. If another row holds more, or is about
        to, that becomes the row's source.
        """
        index = self._row_of.get(session)
        free = [i for i, row in enumerate(self._rows) if row.session is None]
        if index is None and not free:
            return None
        shared = self._shared(token_ids)
        if index is None:
            index = self._choose(free, shared)
            self._row_of[session] = index
            kept = shared[index]
        else:
            kept = _common_prefix(self._tokens[index], token_ids)
        row = self._rows[index]
        row.session = session
        self._touch(row)
        row.done = int(min(kept, row.done))
        row.fresh = min(row.fresh, row.done)
        self._drop_copies(index)
        clean = row.fresh == row.done
        shared[index] = 0
        best = int(np.argmax(shared))
        if shared[best] > row.done and (clean or not self._exact):
            row.source, row.shared = best, int(shared[best])
        row.planned = len(token_ids)
        if clean:
            row.fresh = row.planned
        self._write(index, token_ids)
        return index

    def record(self, index: int, token_ids: np.ndarray) -> None:
        """Notes that a row, after decoding, holds exactly token_ids [n].

        A row that was emptied and never filled again holds only what it was given.
        """
        row = self._rows[index]
        if row.done < row.planned:
            token_ids = token_ids[: row.done]
            row.source = None
        row.planned = row.done = len(token_ids)
        row.fresh = min(row.fresh, row.done)
        self._touch(row)
        self._drop_copies(index)
        self._write(index, token_ids)

    def release(self, session: str) -> None:
        """Frees a session's row; unknown sessions are ignored."""
        index = self._row_of.pop(session, None)
        if index is not None:
            self._rows[index].session = None

    def forget(self) -> None:
        """Marks every row as empty; sessions keep theirs."""
        self._tokens[:] = -1
        for row in self._rows:
            row.planned = row.done = row.fresh = 0
            row.source = None

    def take_copies(self, limit: int) -> list[tuple[int, int]]:
        """At most `limit` (source, target) rows to copy now; they count as done."""
        copies = []
        for index, row in enumerate(self._rows):
            if row.source is None or self._rows[row.source].done < row.shared:
                continue
            copies.append((row.source, index))
            if len(copies) == limit:
                break
        for _, index in copies:
            row = self._rows[index]
            row.done, row.source = row.shared, None
        return copies

    def take_lines(self, limit: int, *, chunk: int) -> list[tuple[int, np.ndarray]]:
        """At most `limit` rows to prefill now, with the positions; they count as done.

        A line is at most `chunk` positions. Exact lines end at multiples of it, so that
        a position falls on the same place in its line however much was there before.
        """
        lines = []
        for index, row in enumerate(self._rows):
            if len(lines) == limit:
                break
            if row.source is not None or row.done == row.planned:
                continue
            end = row.done + chunk - (row.done % chunk if self._exact else 0)
            end = min(end, row.planned)
            lines.append((index, np.arange(row.done, end, dtype=np.int32)))
            row.done = end
        return lines

    def missing(self) -> list[int]:
        """How many tokens each row lacks that still waits for a prefill or a copy."""
        return [r.planned - r.done for r in self._rows if r.done < r.planned]

    def tokens(self, index: int, positions: np.ndarray) -> np.ndarray:
        """The int32 tokens of a row at these positions."""
        return self._tokens[index, positions]

    def _shared(self, token_ids: np.ndarray) -> np.ndarray:
        """[rows] how many leading tokens of token_ids [n] each row can give."""
        size = len(token_ids)
        differ = np.ones((len(self._rows), size + 1), bool)  # A sentinel at the end.
        differ[:, :size] = self._tokens[:, :size] != token_ids[None, :]
        prefix = np.argmax(differ, axis=1)
        give = [self._give(row) for row in self._rows]
        return np.minimum(prefix, give)

    def _choose(self, free: list[int], shared: np.ndarray) -> int:
        """The free row that loses least.

        That is one which nobody is to copy and whose tokens the new ones continue; if
        there is none, the one that was used longest ago.
        """
        sources = {row.source for row in self._rows}
        continued = [
            0 < self._give(row) == shared[i] for i, row in enumerate(self._rows)
        ]
        return max(
            free,
            key=lambda i: (
                i not in sources,
                shared[i] if continued[i] else 0,
                -self._rows[i].last_used,
            ),
        )

    def _give(self, row: Row) -> int:
        """How many of a row's tokens others may reuse."""
        return row.fresh if self._exact else row.planned

    def _touch(self, row: Row) -> None:
        self._clock += 1
        row.last_used = self._clock

    def _drop_copies(self, index: int) -> None:
        """Ends the plans to copy from a row what it does not hold any more."""
        for other in self._rows:
            if other.source == index and other.shared > self._rows[index].done:
                other.source = None

    def _write(self, index: int, token_ids: np.ndarray) -> None:
        self._tokens[index, : len(token_ids)] = token_ids
        self._tokens[index, len(token_ids) :] = -1


def _common_prefix(held: np.ndarray, token_ids: np.ndarray) -> int:
    """How many leading tokens of token_ids [n] are those of held [S]."""
    differ = np.flatnonzero(held[: len(token_ids)] != token_ids)
    return int(differ[0]) if len(differ) else len(token_ids)
