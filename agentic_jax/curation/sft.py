"""SFT trajectories from a teacher: played, filtered, scored, and the best kept.

In the output directory: rollouts.jsonl, every trajectory that was played; scores.jsonl,
where a scorer is named; trajectories.jsonl, what is kept, as training.sft reads it; and
summary.json. Filters work on what was played: change them and run again, and nothing is
played twice.
"""

import asyncio
import collections
import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentic_jax.chat.template import Chat
from agentic_jax.chat.tokenizer import load_tokenizer
from agentic_jax.config import OPEN, SLOT, bind, check
from agentic_jax.curation.filters import SCORERS, best_of_each, first_failed
from agentic_jax.curation.play import PLAYERS, identity, in_parallel, play_missing
from agentic_jax.data.retell import retell
from agentic_jax.data.stitch import stitch
from agentic_jax.data.teacher import write_trajectories
from agentic_jax.journal import Journal, Key
from agentic_jax.monitor.progress import progress
from agentic_jax.recipe import Recipe
from agentic_jax.services import Services, open_services
from agentic_jax.trajectory import Trajectory, from_json, to_json

Finish = Callable[[Trajectory], Trajectory | None]
SFT_OPTIONS = {
    "player": SLOT,
    "problems": int,
    "samples": int,
    "tokenizer": str,
    "filters": OPEN,
    "scorer": SLOT,
    "least_score": float,
    "most_per_problem": int,
    "most_per_source": int,
}


@dataclass(frozen=True)
class _Piece:
    """A played trajectory that passed the filters."""

    key: Key
    source: str
    score: float
    tokens: int
    calls: int


def curate_sft(
    recipe: Recipe, out: pathlib.Path, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Real trajectories: the teacher plays the training problems with the real tools.

    Args:
        recipe: of an RL run: its engine and model are the teacher's, its tasks, tools,
            chat, verifier and limits are used.
        out: directory; one that a killed run left is gone on with.
        options:
            player: the teacher, {"name": a key of play.PLAYERS or "module:function",
                options}; "engine" is the recipe's.
            problems: the first so many; 0 for all.
            samples: of each problem.
            tokenizer: directory of the model to be trained, if its tokenizer is
                another than the teacher's; else "".
            filters: any key to {"name": a key of filters.FILTERS or "module:function",
                options}; see filters.first_failed.
            scorer: {"name": "none"}, or a key of filters.SCORERS or "module:function".
                Without one, the verifier's score is the score.
            least_score: what scores less is dropped.
            most_per_problem, most_per_source: the best so many are kept, 0 for all. A
                problem's source is extra["source"], or its domain.

    Returns:
        The summary: what was played, kept, and dropped by which filter.

    Raises:
        ValueError: unknown options, or `out` holds rollouts of other settings.
        RuntimeError: more rollouts than allowed were lost to faults.
        OSError: the scorer failed.
    """

    def finishing(services: Services) -> tuple[Chat, Finish]:
        if not options["tokenizer"]:
            return services.chat, lambda trajectory: trajectory
        told = _chat_of(recipe, services, options["tokenizer"])
        return told, lambda t: retell(t, heard=services.chat, told=told)

    return _curated(recipe, out, options, finishing, with_tools=True)


def curate_stitched(
    recipe: Recipe, out: pathlib.Path, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The stitched baseline: the teacher solves without tools, calls are put in after.

    Args and errors as for curate_sft; see data.stitch.stitch. A solution without a step
    to replace is dropped and counted as "no_step".
    """

    def finishing(services: Services) -> tuple[Chat, Finish]:
        told, most = services.chat, recipe.config["rollout"]["max_turns"] - 1

        def stitched(trajectory: Trajectory) -> Trajectory | None:
            return stitch(trajectory, chat=services.chat, max_calls=most)

        if not options["tokenizer"]:
            return told, stitched
        told = _chat_of(recipe, services, options["tokenizer"])

        def finish(trajectory: Trajectory) -> Trajectory | None:
            done = stitched(trajectory)
            return done and retell(done, heard=services.chat, told=told)

        return told, finish

    return _curated(recipe, out, options, finishing, with_tools=False)


def _curated(
    recipe: Recipe,
    out: pathlib.Path,
    options: Mapping[str, Any],
    finishing: Callable[[Services], tuple[Chat, Finish]],
    *,
    with_tools: bool,
) -> dict[str, Any]:
    check(options, SFT_OPTIONS, "curation.")
    return asyncio.run(_run(recipe, pathlib.Path(out), options, finishing, with_tools))


async def _run(
    recipe: Recipe,
    out: pathlib.Path,
    options: Mapping[str, Any],
    finishing: Callable[[Services], tuple[Chat, Finish]],
    with_tools: bool,
) -> dict[str, Any]:
    config = recipe.config
    tasks = recipe.tasks()
    made_of = identity(recipe, tasks, options["player"], with_tools=with_tools)
    tasks = tasks[: options["problems"] or None]
    model = recipe.model()
    async with contextlib.AsyncExitStack() as stack:
        journal = stack.enter_context(
            contextlib.closing(Journal(out / "rollouts.jsonl", made_of))
        )
        services = await stack.enter_async_context(
            open_services(recipe, model, params=model.params)
        )
        faults = await play_missing(
            tasks,
            bind(options["player"], PLAYERS)(
                services, seed=config["seed"], with_tools=with_tools
            ),
            journal,
            samples=options["samples"],
            concurrency=config["rollout"]["concurrency"],
            max_fault_fraction=config["max_fault_fraction"],
            record=to_json,
        )
        chat, finish = finishing(services)
        keys = journal.keys_within(len(tasks), options["samples"])
        pieces, dropped = _filtered(journal, keys, options, chat, finish)
        if options["scorer"]["name"] != "none":
            made_of["scorer"] = options["scorer"]
            scores = stack.enter_context(
                contextlib.closing(Journal(out / "scores.jsonl", made_of))
            )
            limit = config["rollout"]["concurrency"]
            pieces = await _scored(
                pieces, journal, scores, options, chat, finish, limit
            )
        chosen = _chosen(pieces, options, dropped)
        kept = (finish(from_json(journal.read(piece.key))) for piece in chosen)
        write_trajectories(out / "trajectories.jsonl", kept)
    summary = {
        "problems": len(tasks),
        "played": len(keys),
        "lost_to_faults": faults,
        "dropped": dict(dropped),
        **_kept(chosen),
    }
    text = json.dumps(summary, indent=2) + "\n"
    (out / "summary.json").write_text(text, "utf-8")
    return summary


def _kept(chosen: Sequence[_Piece]) -> dict[str, Any]:
    """The part of the summary that is about what is kept."""
    return {
        "kept": len(chosen),
        "problems_kept": len({piece.key[0] for piece in chosen}),
        "kept_per_source": dict(collections.Counter(p.source for p in chosen)),
        "tokens_mean": float(np.mean([p.tokens for p in chosen] or [0.0])),
        "calls_mean": float(np.mean([p.calls for p in chosen] or [0.0])),
        "score_mean": float(np.mean([p.score for p in chosen] or [0.0])),
    }


def _filtered(
    journal: Journal,
    keys: Sequence[Key],
    options: Mapping[str, Any],
    chat: Chat,
    finish: Finish,
) -> tuple[list[_Piece], collections.Counter[str]]:
    """What passes the filters, with the verifier's scores, and how many do not."""
    pieces, dropped = [], collections.Counter()
    for key in keys:
        trajectory = finish(from_json(journal.read(key)))
        reason = (
            "no_step"
            if trajectory is None
            else first_failed(trajectory, chat, options["filters"])
        )
        if reason:
            dropped[reason] += 1
            continue
        task = trajectory.task
        pieces.append(
            _Piece(
                key,
                source=str(task.extra.get("source", task.domain)),
                score=trajectory.score or 0.0,
                tokens=len(trajectory.token_ids),
                calls=len(trajectory.calls),
            )
        )
    return pieces, dropped


async def _scored(
    pieces: Sequence[_Piece],
    journal: Journal,
    scores: Journal,
    options: Mapping[str, Any],
    chat: Chat,
    finish: Finish,
    concurrency: int,
) -> list[_Piece]:
    """The pieces with the scorer's scores, each asked for once."""
    scorer = bind(options["scorer"], SCORERS)
    missing = [piece.key for piece in pieces if piece.key not in scores]
    waiting = iter(missing)

    async def work() -> None:
        for key in waiting:
            trajectory = finish(from_json(journal.read(key)))
            scores.add(key, await scorer(trajectory, chat))
            advance(1)

    with progress("score", len(missing), unit="trajectory") as advance:
        await in_parallel(work, min(concurrency, len(missing)))
    return [dataclasses.replace(p, score=scores.read(p.key)) for p in pieces]


def _chosen(
    pieces: Sequence[_Piece],
    options: Mapping[str, Any],
    dropped: collections.Counter[str],
) -> list[_Piece]:
    """The best of each problem, and of these of each source."""
    steps = {
        "least_score": lambda some: [
            i for i, p in enumerate(some) if p.score >= options["least_score"]
        ],
        "most_per_problem": lambda some: best_of_each(
            [str(p.key[0]) for p in some],
            [p.score for p in some],
            options["most_per_problem"],
        ),
        "most_per_source": lambda some: best_of_each(
            [p.source for p in some],
            [p.score for p in some],
            options["most_per_source"],
        ),
    }
    kept = list(pieces)
    for reason, choose in steps.items():
        numbers = choose(kept)
        if len(numbers) < len(kept):
            dropped[reason] += len(kept) - len(numbers)
        kept = [kept[i] for i in numbers]
    return kept


def _chat_of(recipe: Recipe, services: Services, directory: str) -> Chat:
    """The recipe's chat with the tokenizer of another model."""
    chat = recipe.config["chat"]
    return Chat(
        load_tokenizer(directory),
        tuple(services.tools.values()),
        format=chat["format"],
        list_tools=chat["list_tools"],
    )
