"""Supervised training on the sampled tokens of given trajectories."""

import asyncio
import contextlib
import json
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from agentic_jax.batch import Batch, Targets
from agentic_jax.evaluation.benchmark import evaluate
from agentic_jax.losses.aggregation import token_mean_weights
from agentic_jax.models import hf_weights
from agentic_jax.monitor.clock import Clock
from agentic_jax.monitor.progress import progress
from agentic_jax.monitor.writer import MetricWriter
from agentic_jax.packing import pack_rows
from agentic_jax.recipe import Recipe
from agentic_jax.services import open_services
from agentic_jax.sources import Model
from agentic_jax.training.build import build_device
from agentic_jax.training.checkpoint import Checkpointer
from agentic_jax.training.update import update
from agentic_jax.training.workdir import open_workdir
from agentic_jax.trajectory import Trajectory, from_json


def train(recipe: Recipe, *, workdir: str | pathlib.Path) -> tuple[Model, Any]:
    """Trains up to num_steps, or until held-out score reaches stop_at_score.

    Resumes like rl.train and leaves the same files, and a Hugging Face directory
    `model` when it is done.

    Raises:
        ValueError: workdir holds a run with another config, or a line of the
            trajectory file is malformed.
        FloatingPointError: a loss or gradient is not finite.
    """
    return asyncio.run(_train(recipe, pathlib.Path(workdir)))


async def _train(recipe: Recipe, workdir: pathlib.Path) -> tuple[Model, Any]:
    config = recipe.config
    num_steps, evals = config["num_steps"], config["eval"]["every"]
    keep, saves = config["checkpoint"]["keep"], config["checkpoint"]["every"]
    async with contextlib.AsyncExitStack() as stack:
        checkpoints = Checkpointer(workdir / "checkpoints", keep=keep)
        stack.callback(checkpoints.close)
        first = checkpoints.latest() or 0
        open_workdir(workdir, config, latest=checkpoints.latest())
        trajectories = read_trajectories(config["trajectories"])
        model = recipe.model()
        _check_ids(trajectories, model, config["trajectories"])
        device, state = build_device(recipe, model, temperature=1.0)
        done = False
        if first:
            state, extra = checkpoints.restore(state)
            done = extra["done"]
        writer = MetricWriter(workdir, next_step=first)
        stack.callback(writer.close)
        if evals:
            services = await stack.enter_async_context(
                open_services(recipe, model, params=device.weights(state.params))
            )
            held_out = recipe.eval_tasks()[: config["eval"]["problems"]]
        advance = stack.enter_context(
            progress("sft", num_steps, unit="step", initial=first)
        )
        clock = Clock()
        for step in range(first, num_steps):
            if done:
                break
            drawn = _drawn(trajectories, config, step)
            batch, targets = _packed(drawn, config)
            clock.lap("pack")
            state, metrics = update(device, state, batch, targets)
            clock.lap("update")
            if evals and (step + 1) % evals == 0:
                await services.engine.update_weights(
                    device.weights(state.params), step + 1
                )
                report = await evaluate(
                    services, held_out, config=config, step=step + 1
                )
                metrics |= report.metrics()
                clock.lap("eval")
                done = report.average >= config["stop_at_score"]
                logging.info("step %d: score %.3f", step + 1, report.average)
            timing = clock.metrics(tokens=int(batch.mask.sum()))
            timing |= device.rates(
                [len(t.token_ids) for t in drawn], seconds=timing["time/update_s"]
            )
            writer.write(step, metrics | timing)
            clock.lap("log")
            if (step + 1) % saves == 0 or done or step + 1 == num_steps:
                checkpoints.save(step + 1, state, {"done": done})
            clock.lap("save")
            advance(1, loss=metrics["sft/loss"])
    weights = device.weights(state.params)
    save_model(model, weights, workdir / "model")
    return model, weights


def read_trajectories(path: str | pathlib.Path) -> list[Trajectory]:
    """Trajectories from a JSONL file, one to_json object a line.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a malformed line, by its number, or an empty file.
    """
    trajectories = []
    with open(path, encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            try:
                trajectories.append(from_json(json.loads(line)))
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from error
    if not trajectories:
        raise ValueError(f"{path} holds no trajectory")
    return trajectories


def save_model(model: Model, params: Any, path: pathlib.Path) -> None:
    """Writes parameters and tokenizer as a directory that transformers loads.

    An earlier one is replaced once the new one is whole.
    """
    fresh = path.with_name(path.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    hf_weights.save(params, model.config, fresh)
    model.tokenizer.save_pretrained(fresh)
    shutil.rmtree(path, ignore_errors=True)
    fresh.rename(path)


def _check_ids(trajectories: Sequence[Trajectory], model: Model, path: str) -> None:
    """Raises if the trajectories were made with a larger tokenizer."""
    most = max(int(t.token_ids.max()) for t in trajectories)
    if most >= model.config.vocab_size:
        raise ValueError(
            f"{path} has token id {most}, the model's vocabulary ends at "
            f"{model.config.vocab_size - 1}: make it again with this model's tokenizer"
        )


def _drawn(
    trajectories: Sequence[Trajectory], config: Mapping[str, Any], step: int
) -> list[Trajectory]:
    """The trajectories of a step: shuffled epochs, a function of seed and step only."""
    count, size = len(trajectories), config["trajectories_per_step"]
    chosen = []
    for i in range(step * size, (step + 1) * size):
        epoch, place = divmod(i, count)
        order = np.random.default_rng([config["seed"], epoch]).permutation(count)
        chosen.append(trajectories[order[place]])
    return chosen


def _packed(
    trajectories: Sequence[Trajectory], config: Mapping[str, Any]
) -> tuple[Batch, Targets]:
    batch_config = config["batch"]
    batch, _, _ = pack_rows(
        trajectories,
        prompt_ids=range(1, len(trajectories) + 1),
        length=batch_config["row_length"],
        rows_multiple=batch_config["rows_per_microbatch"],
    )
    zeros = np.zeros(batch.tokens.shape, np.float32)
    ids = (batch.mask, batch.segment_ids, batch.prompt_ids)
    weights = np.asarray(token_mean_weights(*ids), np.float32)
    targets = Targets(batch.mask, batch.segment_ids, zeros, zeros, weights)
    return batch, targets
