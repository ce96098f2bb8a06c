"""Benchmarks, one after the other, on one model; killed in the middle, it goes on."""

import asyncio
import contextlib
import functools
import pathlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from agentic_jax.data.tasks import fingerprint
from agentic_jax.evaluation.benchmark import Report, play_benchmark, report
from agentic_jax.evaluation.spec import Benchmark
from agentic_jax.journal import Journal
from agentic_jax.recipe import Recipe
from agentic_jax.rollout.collect import Play
from agentic_jax.services import Services, open_services
from agentic_jax.sources import Model
from agentic_jax.trajectory import Task, Trajectory, from_json, to_json

MODES = ("tools", "self_contained")


def evaluate_suite(
    recipe: Recipe,
    model: Model,
    *,
    modes: Sequence[str],
    journals: pathlib.Path | None,
    names: Sequence[str] = (),
    on_report: Callable[[str, Report], None] = lambda label, done: None,
) -> dict[str, Report]:
    """A report of each benchmark in each mode.

    Args:
        recipe: its benchmarks are evaluated, in their order.
        model: whose params are evaluated.
        modes: of MODES.
        journals: directory that gets every finished trajectory at once, and from which
            a later call takes those that it has. None keeps nothing.
        names: of the benchmarks; all if empty.
        on_report: called with each label and report as soon as it is there.

    Returns:
        Reports by label: "MODE", or "NAME/MODE" where the config names benchmarks.

    Raises:
        ValueError: unknown modes or names, or a journal of another model or config.
        OSError: another process writes the same journals.
    """
    known = {benchmark.name: benchmark for benchmark in recipe.benchmarks}
    for wanted, choices in ((modes, MODES), (names, known)):
        if unknown := [word for word in wanted if word not in choices]:
            raise ValueError(f"unknown: {unknown}; known: {', '.join(choices)}")

    async def run() -> dict[str, Report]:
        reports = {}
        async with open_services(recipe, model, params=model.params) as services:
            for benchmark in [known[name] for name in names or known]:
                for mode in modes:
                    label = label_of(recipe, benchmark, mode)
                    reports[label] = await _evaluate(
                        recipe, model, services, benchmark, mode, journals
                    )
                    on_report(label, reports[label])
        return reports

    return asyncio.run(run())


def label_of(recipe: Recipe, benchmark: Benchmark, mode: str) -> str:
    """How a report is called in files and tables."""
    named = bool(recipe.config["eval"]["benchmarks"])
    return f"{benchmark.name}/{mode}" if named else mode


def remembered(play: Play, journal: Journal) -> Play:
    """`play`, but what the journal has is read, and what it lacks is added.

    A trajectory that a fault of ours ended is not added: a later run plays it again.
    """

    async def play_once(task: Task, p: int, g: int) -> Trajectory:
        if (p, g) in journal:
            return from_json(journal.read((p, g)))
        trajectory = await play(task, p, g)
        if trajectory.stop == "fault":
            return trajectory
        record = to_json(trajectory)
        journal.add((p, g), record)
        return from_json(record)  # As a resumed run will read it.

    return play_once


async def _evaluate(
    recipe: Recipe,
    model: Model,
    services: Services,
    benchmark: Benchmark,
    mode: str,
    journals: pathlib.Path | None,
) -> Report:
    tasks = benchmark.tasks()
    config = {**recipe.config, "eval": benchmark.sampling}
    options = {}
    with contextlib.ExitStack() as stack:
        if journals:
            journal = Journal(
                journals / f"{benchmark.name}.{mode}.jsonl",
                _identity(recipe, model, benchmark, tasks, mode),
            )
            stack.callback(journal.close)
            options["wrap"] = functools.partial(remembered, journal=journal)
        groups = await play_benchmark(
            services.with_verifier(benchmark.verifier),
            tasks[: benchmark.sampling["problems"]],
            config=config,
            step=0,
            with_tools=mode == "tools",
            **options,
        )
    return report(
        groups,
        decode=services.chat.decode,
        seed=recipe.config["seed"],
        runs=benchmark.sampling["runs"],
    )


def _identity(
    recipe: Recipe,
    model: Model,
    benchmark: Benchmark,
    tasks: Sequence[Task],
    mode: str,
) -> dict[str, Any]:
    """What a trajectory depends on; how many are wanted may change."""
    config = recipe.config
    limits = ("max_turns", "max_prompt_tokens", "max_response_tokens")
    sampling = ("temperature", "top_p", "top_k")
    return {
        **{key: config[key] for key in ("seed", "model", "chat", "tools")},
        "weights": weights_fingerprint(model.params),
        "rollout": {key: config["rollout"][key] for key in limits},
        "sampling": {key: benchmark.sampling[key] for key in sampling},
        "verifier": benchmark.source["verifier"],
        "tasks": fingerprint(tasks),
        "mode": mode,
    }


def weights_fingerprint(params: Mapping[str, Any]) -> int:
    """A CRC of up to 64 numbers of the first and the last row of every array.

    It tells apart the checkpoints of a run at next to no cost, and proves nothing.
    """
    crc = 0
    for leaf in jax.tree.leaves(params):
        rows = jnp.atleast_1d(leaf)
        for row in (0, -1):
            part = jax.device_get(rows[(row,) * (rows.ndim - 1)][:64])
            crc = zlib.crc32(np.asarray(part).tobytes(), crc)
    return crc
