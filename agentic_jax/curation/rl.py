"""RL problems by difficulty: solve rates from k rollouts, bins, and matched shares.

In the output directory: scores.jsonl, the score of every rollout; rates.jsonl, every
problem with its rate and label; problems.jsonl, the problems to train on, as TASKS
"jsonl" reads them; and summary.json.
"""

import asyncio
import collections
import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from agentic_jax.config import SLOT, bind, check
from agentic_jax.curation.play import PLAYERS, identity, play_missing
from agentic_jax.data.difficulty import (
    BINS,
    LABELS,
    distinct_ids,
    histogram,
    label_of,
    match_histogram,
    solve_rate,
)
from agentic_jax.data.rows import read_rows, write_rows
from agentic_jax.journal import Journal
from agentic_jax.recipe import Recipe
from agentic_jax.services import open_services
from agentic_jax.trajectory import Task

RL_OPTIONS = {
    "player": SLOT,
    "problems": int,
    "samples": int,
    "target": SLOT,
    "count": int,
    "previous": str,
}
FIELDS = {"id": "id", "messages": "messages", "answer": "answer", "domain": "domain"}
UNSCORED = "unscored"  # All its samples were lost to faults.


def _shares(*, hard: float, medium: float, easy: float) -> dict[str, float]:
    return {"hard": hard, "medium": medium, "easy": easy}


def _like(*, path: str) -> dict[str, float]:
    """The histogram of another curation's directory."""
    return json.loads((pathlib.Path(path) / "summary.json").read_text())["histogram"]


TARGETS: dict[str, Callable[..., dict[str, float] | None]] = {
    "none": lambda: None,
    "shares": _shares,
    "like": _like,
}


def curate_rl(
    recipe: Recipe, out: pathlib.Path, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Samples every training problem and keeps those that the policy solves sometimes.

    Args:
        recipe: of an RL run; its model is the policy that difficulty is measured for.
        out: directory; one that a killed run left is gone on with. Take a new one for
            a newer policy.
        options:
            player: who plays, a key of play.PLAYERS; "engine" is the recipe's.
            problems: the first so many; 0 for all.
            samples: k of each problem; the paper has 8.
            target: shares of the bins among the problems that are kept: {"name":
                "none"} keeps all; {"name": "shares", "hard", "medium", "easy"}; or
                {"name": "like", "path"}, the shares that another curation found, such
                as that of a stronger policy.
            count: problems to keep, 0 for as many as the target allows; needs a target.
            previous: directory of an earlier curation of these problems; "" for none.
                The summary then says how many moved between which labels.

    Returns:
        The summary: problems by label, the histogram over bins, the mean rate.

    Raises:
        ValueError: unknown options, `out` holds scores of other settings, or no problem
            is left.
        RuntimeError: more rollouts than allowed were lost to faults.
    """
    check(options, RL_OPTIONS, "curation.")
    out = pathlib.Path(out)
    target = bind(options["target"], TARGETS)()
    if options["count"] and not target:
        raise ValueError(
            f"curation.count is {options['count']}, but curation.target.name is 'none'"
        )
    tasks = recipe.tasks()
    made_of = identity(recipe, tasks, options["player"])
    tasks = tasks[: options["problems"] or None]
    with contextlib.closing(Journal(out / "scores.jsonl", made_of)) as journal:
        asyncio.run(_play(recipe, tasks, journal, options))
        scores: list[list[float]] = [[] for _ in tasks]
        for p, g in journal.keys_within(len(tasks), options["samples"]):
            scores[p].append(journal.read((p, g)))
    rates = [solve_rate(group) if group else None for group in scores]
    labels = [UNSCORED if rate is None else label_of(rate) for rate in rates]
    rows = [
        {"id": t.id, "solve_rate": rate, "samples": len(group), "label": label}
        for t, rate, group, label in zip(tasks, rates, scores, labels, strict=True)
    ]
    write_rows(out / "rates.jsonl", rows)
    rng = np.random.default_rng([recipe.config["seed"], 4])
    kept = _kept(labels, target, count=options["count"], rng=rng)
    write_rows(out / "problems.jsonl", _problems(tasks, rates, labels, kept))
    known = [rate for rate in rates if rate is not None]
    summary = {
        "problems": len(tasks),
        "samples": options["samples"],
        "solve_rate_mean": float(np.mean(known)),
        "labels": {name: labels.count(name) for name in (*LABELS, UNSCORED)},
        "histogram": histogram(labels),
        "kept": len(kept),
        "kept_histogram": histogram([labels[i] for i in kept]),
        "tasks": {
            "name": "jsonl",
            "path": str(out / "problems.jsonl"),
            "fields": FIELDS,
        },
    }
    if options["previous"]:
        summary["moved"] = _moved(pathlib.Path(options["previous"]), rows)
    text = json.dumps(summary, indent=2) + "\n"
    (out / "summary.json").write_text(text, "utf-8")
    return summary


async def _play(
    recipe: Recipe,
    tasks: Sequence[Task],
    journal: Journal,
    options: Mapping[str, Any],
) -> None:
    config, model = recipe.config, recipe.model()
    async with open_services(recipe, model, params=model.params) as services:
        await play_missing(
            tasks,
            bind(options["player"], PLAYERS)(
                services, seed=config["seed"], with_tools=True
            ),
            journal,
            samples=options["samples"],
            concurrency=config["rollout"]["concurrency"],
            max_fault_fraction=config["max_fault_fraction"],
            record=lambda trajectory: trajectory.score,
        )


def _kept(
    labels: Sequence[str],
    target: Mapping[str, float] | None,
    *,
    count: int,
    rng: np.random.Generator,
) -> list[int]:
    """Numbers of the problems to train on.

    Raises:
        ValueError: there is none.
    """
    if target:
        return match_histogram(labels, target, count=count, rng=rng)
    kept = [i for i, label in enumerate(labels) if label in BINS]
    if not kept:
        found = dict(collections.Counter(labels))
        raise ValueError(
            f"no problem has a solve rate between 0 and 1, but {found}: take other "
            "problems, another policy, or more curation.samples"
        )
    return kept


def _problems(
    tasks: Sequence[Task],
    rates: Sequence[float | None],
    labels: Sequence[str],
    kept: Sequence[int],
) -> Iterator[dict[str, Any]]:
    """Rows of a problem file, with solve rate and bin among the extra fields.

    Raises:
        ValueError: an extra field of a task has the name of a field of FIELDS.
    """
    for task, i in zip(distinct_ids([tasks[i] for i in kept]), kept, strict=True):
        taken = sorted(FIELDS.keys() & task.extra.keys())
        if taken:
            raise ValueError(
                f"task {task.id!r} has extra[{taken[0]!r}], which a problem file keeps "
                "for something else: rename it"
            )
        yield {
            "id": task.id,
            "messages": [dict(message) for message in task.messages],
            "answer": task.answer,
            "domain": task.domain,
            **task.extra,
            "solve_rate": rates[i],
            "bin": labels[i],
        }


def _moved(previous: pathlib.Path, rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many problems went from which label to which, those that stayed included."""
    before = {
        row.values["id"]: row.values["label"]
        for row in read_rows(previous / "rates.jsonl")
    }
    moves = collections.Counter(
        f"{before[row['id']]} -> {row['label']}" for row in rows if row["id"] in before
    )
    return dict(sorted(moves.items()))
