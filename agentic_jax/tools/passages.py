"""A file of passages, and a BM25 index over it."""

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Passage:
    """A piece of text under a title.

    Attributes:
        id: as the file has it.
        title: "" if there is none.
        text: without the title.
        score: of the retrieval that found it; 0 in a file.
    """

    id: str
    title: str
    text: str
    score: float = 0.0


def read_passages(path: str | pathlib.Path) -> list[Passage]:
    r"""The passages of a JSON-lines file, one object a line.

    Either {"id", "title", "text"}, or Search-R1's {"id", "contents"}, whose first line
    is the title, in quotation marks or not.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a bad line, named by file and number, or no passage.
    """
    passages = []
    for number, line in enumerate(pathlib.Path(path).read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            passages.append(passage_of(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}, line {number}: no passage: {error!r}") from error
    if not passages:
        raise ValueError(f"{path} holds no passage")
    return passages


def passage_of(document: dict[str, Any], score: float = 0.0) -> Passage:
    """A document of either form as a Passage.

    Raises:
        KeyError: neither "text" nor "contents".
    """
    if "text" in document:
        title, text = str(document.get("title", "")), str(document["text"])
    else:
        title, _, text = document["contents"].partition("\n")
        title = title.strip().removeprefix('"').removesuffix('"')
    return Passage(str(document.get("id", "")), title, text, score)


class PassageIndex:
    """Ranks passages by BM25 over title and text, with Lucene's weights.

    Args:
        passages: at least one. Words are runs of two or more letters or digits, in
            lower case; common English words are left out.

    Raises:
        ValueError: no passage has a word.

    Source: the bm25s library.
    """

    def __init__(self, passages: Sequence[Passage]):
        import bm25s  # Slow: where jax is installed, it starts it.

        self._bm25s, self._passages = bm25s, tuple(passages)
        self._model = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
        words = self._words([f"{p.title}\n{p.text}" for p in passages])
        if not any(words):
            raise ValueError(
                f"none of {len(passages)} passages has a word to find it by"
            )
        self._model.index(words, show_progress=False)

    def __len__(self) -> int:
        """How many passages there are."""
        return len(self._passages)

    def search(self, query: str, *, k: int) -> list[Passage]:
        """Up to k passages that share a word with the query, the best first.

        Ties are broken by the file's order.
        """
        (words,) = self._words([query])
        if not words or k < 1:
            return []
        scores = self._model.get_scores(words)
        least = np.partition(scores, -k)[-k] if k < len(scores) else 0.0
        found = np.flatnonzero((scores >= least) & (scores > 0))
        best = found[np.argsort(-scores[found], kind="stable")][:k]
        return [
            dataclasses.replace(self._passages[i], score=float(scores[i])) for i in best
        ]

    def _words(self, texts: list[str]) -> list[list[str]]:
        return self._bm25s.tokenize(texts, return_ids=False, show_progress=False)
