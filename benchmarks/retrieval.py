"""How many of the titles that support an answer BM25 finds.

    python -m benchmarks.retrieval --passages wiki.jsonl --questions hotpotqa.jsonl

Questions have a `question` and `gold_titles`, or HotpotQA's `supporting_facts`.
"""

import argparse
import time
from collections.abc import Sequence

from agentic_jax.data.rows import read_rows
from agentic_jax.tools.passages import PassageIndex, read_passages


def recall(
    index: PassageIndex, questions: Sequence[tuple[str, Sequence[str]]], *, k: int
) -> float:
    """Mean share of a question's titles among those of its best k passages."""
    shares = []
    for question, titles in questions:
        found = {passage.title for passage in index.search(question, k=k)}
        shares.append(len(found & set(titles)) / len(set(titles)))
    return sum(shares) / len(shares)


def main() -> None:
    """Prints one line a k."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", required=True)
    parser.add_argument("--questions", required=True)
    arguments = parser.parse_args()
    index = PassageIndex(read_passages(arguments.passages))
    rows = [row.values for row in read_rows(arguments.questions)]
    questions = [
        (row["question"], row.get("gold_titles") or row["supporting_facts"]["title"])
        for row in rows
    ]
    for k in (1, 3, 5, 10, 20):
        start = time.monotonic()
        found = recall(index, questions, k=k)
        milliseconds = (time.monotonic() - start) / len(questions) * 1e3
        print(f"recall@{k:<3} {found:.3f}   {milliseconds:.1f} ms a question")


if __name__ == "__main__":
    main()
