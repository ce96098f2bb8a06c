"""Generated questions over generated passages: two look-ups to an answer.

A person was born in a town, and a town has a mayor: who is asked for the mayor has to
find the person first. No passage holds a whole chain.
"""

import numpy as np

from agentic_jax.data.tasks import user_messages
from agentic_jax.tools.base import Tool
from agentic_jax.tools.passages import Passage, PassageIndex
from agentic_jax.tools.search import index_tool
from agentic_jax.trajectory import Task

_FIRST = ("Ana", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Ida")
_LAST = ("Ash", "Berg", "Cole", "Dorn", "Elm", "Frey", "Gray", "Hale")
_TOWNS = ("Arden", "Brook", "Crane", "Delft", "Eston", "Firth", "Glenn", "Hurst")
_MAYORS = ("Otis", "Pell", "Quin", "Rusk", "Stout", "Thorn", "Udall", "Voss")


def lookups(*, split: str, count: int, seed: int) -> list[Task]:
    """`count` distinct questions for the mayor of a person's town of birth.

    Args:
        split: "train" or "eval"; every fourth person belongs to "eval".
        count: questions, at most 48 of "train" and 16 of "eval".
        seed: of the facts, which both splits share, and of the order.

    Returns:
        Tasks for the verifier "short_answer_f1"; extra["supporting_titles"] names the
        passages that hold the two facts.

    Raises:
        ValueError: another split, or a count that is out of range.
    """
    if split not in ("train", "eval"):
        raise ValueError(f"split is 'train' or 'eval', not {split!r}")
    birthplaces, mayors = _facts(seed)
    people = [p for i, p in enumerate(birthplaces) if (i % 4 == 0) == (split == "eval")]
    if not 1 <= count <= len(people):
        raise ValueError(
            f"count is {count}; there are {len(people)} questions of {split}"
        )
    order = np.random.default_rng([seed, 1]).permutation(len(people))
    tasks = []
    for i in order[:count]:
        person = people[i]
        town = birthplaces[person]
        extra = {
            "verifier": "short_answer_f1",
            "answers": [mayors[town]],
            "supporting_titles": [person, town],
        }
        question = f"Who is mayor of the town where {person} was born?"
        id = f"lookup-{seed}-{person}"
        tasks.append(Task(id, user_messages(question), mayors[town], "qa", extra))
    return tasks


def lookup_passages(*, seed: int) -> list[Passage]:
    """A passage for each person and each town, titled by its name."""
    birthplaces, mayors = _facts(seed)
    people = [Passage(p, p, f"{p} was born in {t}.") for p, t in birthplaces.items()]
    towns = [Passage(t, t, f"The mayor of {t} is {m}.") for t, m in mayors.items()]
    return people + towns


def lookup_search(*, seed: int, k: int, max_chars: int, timeout: float) -> Tool:
    """BM25 over lookup_passages; other options as for tools.search.index_tool."""
    index = PassageIndex(lookup_passages(seed=seed))
    return index_tool(index, k=k, max_chars=max_chars, timeout=timeout)


def _facts(seed: int) -> tuple[dict[str, str], dict[str, str]]:
    """Person to town of birth, and town to mayor."""
    rng = np.random.default_rng([seed, 0])
    people = [f"{first} {last}" for first in _FIRST for last in _LAST]
    born = rng.choice(_TOWNS, size=len(people))
    mayors = rng.permutation(_MAYORS)
    return (
        {person: str(town) for person, town in zip(people, born, strict=True)},
        {town: str(mayor) for town, mayor in zip(_TOWNS, mayors, strict=True)},
    )
