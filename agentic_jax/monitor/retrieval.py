"""Whether the searches of a trajectory showed what the answer rests on."""

from collections.abc import Sequence

import numpy as np

from agentic_jax.trajectory import Trajectory


def retrieval_stats(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Recall of supporting passages, by title, over what search results showed.

    Returns:
        tool/supporting_recall, the mean over trajectories of the share of the task's
        supporting titles that some result showed, and
        tool/all_supporting_fraction, the share of trajectories that were shown all of
        them. Empty where no task has extra["supporting_titles"]; faults are left out.
    """
    shares = [
        supporting_recall(t)
        for t in trajectories
        if t.stop != "fault" and t.task.extra.get("supporting_titles")
    ]
    if not shares:
        return {}
    return {
        "tool/supporting_recall": float(np.mean(shares)),
        "tool/all_supporting_fraction": float(np.mean(np.array(shares) == 1.0)),
    }


def supporting_recall(trajectory: Trajectory) -> float:
    """The share of task.extra["supporting_titles"] that search results showed.

    A title counts where a result has it as "(Title: ...)", as tools.search writes it.
    """
    titles = trajectory.task.extra["supporting_titles"]
    shown = "\n".join(call.result.text for call in trajectory.calls)
    found = [f"(Title: {' '.join(title.split())})" in shown for title in titles]
    return sum(found) / len(found)
