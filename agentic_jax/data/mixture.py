"""Several sources of problems in given proportions."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from agentic_jax.data.tasks import TaskStream
from agentic_jax.trajectory import Task


def mix(
    sources: Mapping[str, Sequence[Task]],
    *,
    weights: Mapping[str, float],
    count: int,
    seed: int,
) -> list[Task]:
    """`count` tasks in shuffled order, from each source its share.

    A source that is larger than its share gives distinct tasks; one that is smaller
    starts again, each time in a new order, under ids that end in "-again-N". The list
    depends on the arguments only, so a TaskStream over it resumes exactly.

    Args:
        sources: name to its tasks, at least one each.
        weights: name to its share, before they are scaled to sum to 1.
        count: tasks of the mixture.
        seed: of the draw.

    Returns:
        Tasks with "source/" before their ids and extra["source"]. Shares are rounded so
        that they sum to `count`.

    Raises:
        ValueError: other names in weights than in sources, a weight that is not
            positive, or a source without tasks.
    """
    if weights.keys() != sources.keys():
        raise ValueError(
            f"weights name {', '.join(weights)}, sources {', '.join(sources)}"
        )
    bad = {name: w for name, w in weights.items() if not 0 < w < float("inf")}
    if bad:
        raise ValueError(f"weights must be positive: {bad}")
    edges = np.cumsum([0.0, *weights.values()])
    edges = np.rint(edges / edges[-1] * count).astype(int)
    drawn: list[Task] = []
    for i, (name, tasks) in enumerate(sources.items()):
        stream = TaskStream(tasks, seed=seed + i)
        for k, task in enumerate(stream.next(int(edges[i + 1] - edges[i]))):
            again = f"-again-{k // len(tasks)}" if k >= len(tasks) else ""
            extra = {**task.extra, "source": name}
            id = f"{name}/{task.id}{again}"
            drawn.append(dataclasses.replace(task, id=id, extra=extra))
    order = np.random.default_rng([seed, count]).permutation(len(drawn))
    return [drawn[i] for i in order]
