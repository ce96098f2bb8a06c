"""Supervised training on the sampled tokens of given trajectories."""

import asyncio
import contextlib
import json
import pathlib
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
    checkpoints = Checkpointer(
        workdir / "checkpoints", keep=config["checkpoint"]["keep"]
    )
    first = checkpoints.latest() or 0
    open_workdir(workdir, config, latest=checkpoints.latest())
    trajectories = read_trajectories(config["trajectories"])
    model = recipe.model()
    device, state = build_device(recipe, model, temperature=1.0)
    if first:
        state, _ = checkpoints.restore(state)
    writer = MetricWriter(workdir, next_step=first)
    num_steps, every = config["num_steps"], config["eval"]["every"]
    async with contextlib.AsyncExitStack() as stack:
        if every:
            services = await stack.enter_async_context(
                open_services(recipe, model, params=state.params)
            )
            held_out = recipe.eval_tasks()[: config["eval"]["problems"]]
        advance = stack.enter_context(
            progress("sft", num_steps, unit="step", initial=first)
        )
        for step in range(first, num_steps):
            clock = Clock()
            chosen = _drawn(trajectories, config, step)
            batch, targets = _packed(chosen, config)
            state, metrics = update(device, state, batch, targets)
            clock.lap("update")
            done = False
            if every and (step + 1) % every == 0:
                await services.engine.update_weights(state.params, step + 1)
                report = await evaluate(
                    services, held_out, config=config, step=step + 1
                )
                metrics |= report.metrics()
                done = report.average >= config["stop_at_score"]
                clock.lap("eval")
            tokens = int(batch.mask.sum())
            writer.write(step, metrics | clock.metrics(tokens=tokens))
            advance(1, loss=metrics["sft/loss"])
            last = done or step + 1 == num_steps
            if last or (step + 1) % config["checkpoint"]["every"] == 0:
                checkpoints.save(step + 1, state, {})
            if done:
                logging.info("score %.3f at step %d: done", report.average, step + 1)
                break
    checkpoints.close()
    writer.close()
    save_model(model, state.params, workdir / "model")
    return model, state.params


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
    """Writes parameters and tokenizer as a directory that transformers loads."""
    hf_weights.save(params, model.config, path)
    model.tokenizer.save_pretrained(path)


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
