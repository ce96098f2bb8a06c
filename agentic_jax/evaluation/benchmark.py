"""Repeated samples of held-out problems, as estimates with intervals."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentic_jax.evaluation.estimators import (
    avg_at_k,
    bootstrap_ci,
    maj_at_k,
    pass_at_k,
    wilson_interval,
)
from agentic_jax.monitor import stats
from agentic_jax.monitor.progress import progress
from agentic_jax.monitor.retrieval import retrieval_stats
from agentic_jax.recipe import Recipe
from agentic_jax.rewards.answers import extract_boxed, extract_tag
from agentic_jax.rewards.verifiers import policy_text
from agentic_jax.rollout.collect import Play, collect
from agentic_jax.services import Services, make_player, open_services
from agentic_jax.sources import Model
from agentic_jax.trajectory import Task, Trajectory


@dataclass(frozen=True)
class Report:
    """Estimates over problems, each with a 95% interval over problems.

    Bootstrap intervals; Wilson's for one sample a problem that is right or wrong.

    Attributes:
        problems: how many.
        samples: of each in each run, k.
        estimates: {"avg@k" | "pass@k" | "maj@k": (value, low, high)}.
        run_means: avg@k of each run, in order.
        details: tool, rollout and entropy statistics.
        groups: the trajectories, one group a problem, run after run.
    """

    problems: int
    samples: int
    estimates: Mapping[str, tuple[float, float, float]]
    run_means: Sequence[float]
    details: Mapping[str, float]
    groups: Sequence[Sequence[Trajectory]]

    @property
    def average(self) -> float:
        """avg@k."""
        return self.estimates[f"avg@{self.samples}"][0]

    @property
    def run_std(self) -> float | None:
        """Standard deviation of avg@k over runs, ddof 1; None for a single run."""
        if len(self.run_means) < 2:
            return None
        return float(np.std(self.run_means, ddof=1))

    @property
    def scores(self) -> dict[str, list[float]]:
        """The score of each sample of each problem, by task id; 0 for a fault."""
        return {g[0].task.id: [t.score or 0.0 for t in g] for g in self.groups}

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
    """Samples each task config["eval"]["samples"] times a run and estimates accuracy.

    Args:
        services: open; the engine's present weights are evaluated.
        tasks: held-out problems.
        config: of the recipe: `seed`, `eval` and `rollout`.
        step: names the evaluation; part of every seed.
        with_tools: False evaluates self-contained answers.
    """
    groups = await play_benchmark(
        services, tasks, config=config, step=step, with_tools=with_tools
    )
    return report(
        groups,
        decode=services.chat.decode,
        seed=config["seed"],
        runs=config["eval"]["runs"],
    )


async def play_benchmark(
    services: Services,
    tasks: Sequence[Task],
    *,
    config: Mapping[str, Any],
    step: int,
    with_tools: bool = True,
    first: int = 0,
    wrap: Callable[[Play], Play] = lambda play: play,
) -> list[list[Trajectory]]:
    """The groups of evaluate, [P][runs k]; args as there.

    Args:
        first: number of the first task, where other processes play those before it.
        wrap: what plays to what is asked instead, as one that remembers.
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
    size = chosen["samples"] * chosen["runs"]
    with progress("evaluate", len(tasks) * size, unit="trajectory") as advance:
        return await collect(
            tasks,
            wrap(play),
            group_size=size,
            concurrency=config["rollout"]["concurrency"],
            first_prompt=first,
            on_done=lambda trajectory: advance(1),
        )


def report(
    groups: Sequence[Sequence[Trajectory]],
    *,
    decode: Callable[[np.ndarray], str],
    seed: int,
    runs: int = 1,
) -> Report:
    """Estimates from finished groups; a fault counts as wrong and is in the details.

    avg@k and pass@k are of all samples, maj@k is the mean of the runs' own.

    Args:
        groups: [P][runs k] scored trajectories, run after run.
        decode: token ids to text, for the votes of maj@k.
        seed: of the bootstrap.
        runs: how many.

    Raises:
        ValueError: no problem, or a group that does not divide into runs.
    """
    if not groups or len(groups[0]) % runs:
        sizes = [len(group) for group in groups][:1]
        raise ValueError(f"groups of {sizes} samples are no {runs} runs")
    k = len(groups[0]) // runs
    scores = np.array([[t.score or 0.0 for t in group] for group in groups])
    votes = [[_answer(policy_text(t, decode)) for t in group] for group in groups]
    per_problem = {
        f"avg@{k}": avg_at_k(scores),
        f"pass@{k}": pass_at_k(scores, k=k),
        f"maj@{k}": np.mean(
            [
                maj_at_k([v[i : i + k] for v in votes], scores[:, i : i + k])
                for i in range(0, runs * k, k)
            ],
            axis=0,
        ),
    }
    estimates = {
        name: (float(x.mean()), *_interval(x, samples=runs * k, seed=seed))
        for name, x in per_problem.items()
    }
    trajectories = [t for group in groups for t in group]
    details = {**stats.rollout_stats(trajectories), **stats.tool_stats(trajectories)}
    details |= retrieval_stats(trajectories)
    details["policy/sampled_nll_mean"] = stats.sampled_nll(trajectories)
    run_means = scores.reshape(len(groups), runs, k).mean(axis=(0, 2)).tolist()
    return Report(len(groups), k, estimates, run_means, details, groups)


def _interval(values: np.ndarray, *, samples: int, seed: int) -> tuple[float, float]:
    """Wilson's where each problem is one trial that is right or wrong, else bootstrap:
    0 of 50 must not look certain."""
    if samples == 1 and np.isin(values, (0.0, 1.0)).all():
        return wilson_interval(int(values.sum()), len(values))
    return bootstrap_ci(values, rng=np.random.default_rng(seed))


def _answer(text: str) -> str:
    """The vote of one sample; "" where there is no answer."""
    boxed = extract_boxed(text)
    answer = boxed if boxed is not None else extract_tag(text, "answer")
    return "".join((answer or "").split())


def evaluate_model(
    recipe: Recipe, model: Model, params: Any, *, with_tools: bool = True
) -> Report:
    """Opens services for `params`, evaluates the recipe's eval_tasks, closes them."""

    async def run() -> Report:
        tasks = recipe.eval_tasks()[: recipe.config["eval"]["problems"]]
        async with open_services(recipe, model, params=params) as services:
            return await evaluate(
                services, tasks, config=recipe.config, step=0, with_tools=with_tools
            )

    return asyncio.run(run())


def summary(report: Report) -> dict[str, Any]:
    """A JSON-able dict: estimates with intervals, then every detail, then `scores`.

    `ci95` is the interval of avg@k; each other estimate has its own beside it.
    `run_std` is there if there is more than one run.
    """
    flat: dict[str, Any] = {"problems": report.problems, "samples": report.samples}
    flat["runs"] = len(report.run_means)
    if report.run_std is not None:
        flat |= {"run_means": list(report.run_means), "run_std": report.run_std}
    for name, (value, low, high) in report.estimates.items():
        flat[name] = value
        flat["ci95" if name.startswith("avg@") else f"{name}_ci95"] = [low, high]
    flat["tool_success"] = report.details["tool/success_fraction"]
    details = {k: float(v) for k, v in report.details.items()}
    return {**flat, **details, "scores": report.scores}


def table(reports: Mapping[str, Report]) -> str:
    """Lines of text: one row a report, estimates with intervals and tool use."""
    lines = []
    for label, r in reports.items():
        cells = [
            f"{name} {value:.3f} [{low:.3f}, {high:.3f}]"
            for name, (value, low, high) in r.estimates.items()
        ]
        if r.run_std is not None:
            cells.append(f"std of {len(r.run_means)} runs {r.run_std:.3f}")
        cells.append(f"calls {r.details['tool/calls_mean']:.2f}")
        cells.append(f"call success {r.details['tool/success_fraction']:.3f}")
        cells.append(f"tokens a turn {r.details['rollout/tokens_per_turn_mean']:.1f}")
        lines.append(f"  {label:<16} " + "  ".join(cells))
    return "\n".join(lines)
