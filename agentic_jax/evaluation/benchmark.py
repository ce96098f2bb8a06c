"""Repeated samples of held-out problems, as estimates with intervals."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentic_jax.evaluation.estimators import (
    avg_at_k,
    bootstrap_ci,
    maj_at_k,
    pass_at_k,
)
from agentic_jax.monitor import stats
from agentic_jax.monitor.progress import progress
from agentic_jax.rewards.answers import final_answer
from agentic_jax.rollout.collect import collect
from agentic_jax.services import Services, make_player
from agentic_jax.trajectory import Task, Trajectory


@dataclass(frozen=True)
class Report:
    """Estimates over problems, each with a 95% bootstrap interval over problems.

    Attributes:
        problems: how many.
        samples: of each, k.
        estimates: {"avg@k" | "pass@k" | "maj@k": (value, low, high)}.
        details: tool, rollout and entropy statistics.
        groups: the trajectories, one group a problem.
    """

    problems: int
    samples: int
    estimates: Mapping[str, tuple[float, float, float]]
    details: Mapping[str, float]
    groups: Sequence[Sequence[Trajectory]]

    @property
    def average(self) -> float:
        """avg@k."""
        return self.estimates[f"avg@{self.samples}"][0]

    def metrics(self) -> dict[str, float]:
        """Flat eval/ metrics, interval ends as _low and _high."""
        flat = {}
        for name, (value, low, high) in self.estimates.items():
            flat |= {
                f"eval/{name}": value,
                f"eval/{name}_low": low,
                f"eval/{name}_high": high,
            }
        details = {f"eval/{k.replace('/', '_')}": v for k, v in self.details.items()}
        return flat | details


async def evaluate(
    services: Services,
    tasks: Sequence[Task],
    *,
    config: Mapping[str, Any],
    step: int,
    with_tools: bool = True,
) -> Report:
    """Samples each task config["eval"]["samples"] times and estimates accuracy.

    Args:
        services: open; the engine's present weights are evaluated.
        tasks: held-out problems.
        config: of the recipe: `seed`, `eval` and `rollout`.
        step: names the evaluation; part of every seed.
        with_tools: False evaluates self-contained answers.
    """
    chosen = config["eval"]
    play = make_player(
        services,
        purpose="eval",
        step=step,
        seed=config["seed"],
        with_tools=with_tools,
        sampling=chosen,
    )
    total = len(tasks) * chosen["samples"]
    with progress("evaluate", total, unit="trajectory") as advance:
        groups = await collect(
            tasks,
            play,
            group_size=chosen["samples"],
            concurrency=config["rollout"]["concurrency"],
            on_done=lambda trajectory: advance(1),
        )
    return report(groups, decode=services.chat.decode, seed=config["seed"])
