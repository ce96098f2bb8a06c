"""Agentic RL: problems to trajectories to credit to new weights, in one loop."""

import asyncio
import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from agentic_jax.batch import Batch, Scores
from agentic_jax.evaluation.benchmark import play_benchmark, report
from agentic_jax.losses.correction import mismatch_report
from agentic_jax.monitor import behavior, stats, trace, truth
from agentic_jax.monitor.clock import Clock
from agentic_jax.monitor.progress import progress
from agentic_jax.monitor.run_files import RunFiles
from agentic_jax.monitor.truth import token_truth
from agentic_jax.packing import pack_step
from agentic_jax.recipe import Recipe, batch_table
from agentic_jax.services import Services, open_services
from agentic_jax.sources import Model
from agentic_jax.training import processes
from agentic_jax.training.build import build_device
from agentic_jax.training.checkpoint import Checkpointer
from agentic_jax.training.conditions import EarlyStop, value_of
from agentic_jax.training.rollouts import Rollouts, rollouts_of
from agentic_jax.training.stages import Stages, stage_table
from agentic_jax.training.state import TrainState
from agentic_jax.training.update import (
    Device,
    score_step,
    step_targets,
    update_step,
)
from agentic_jax.training.workdir import open_workdir
from agentic_jax.trajectory import Task

# Weights beyond these, and a KL above this, are told of.
_mismatch = jax.jit(
    functools.partial(
        mismatch_report, low=0.5, high=2.0, alarm=truth.LIMITS["policy/mismatch_kl"][0]
    )
)


def train(
    recipe: Recipe,
    *,
    workdir: str | pathlib.Path,
    profile_steps: Collection[int] = (),
) -> tuple[Model, Any]:
    """Runs the recipe up to its num_steps; returns the model and its new parameters.

    It ends before where early_stop says so, with a warning that tells why and where the
    best checkpoint is; started again, it only says so once more.

    Starts from the newest checkpoint in workdir if there is one. Leaves there
    config.json, checkpoints, metrics.jsonl, TensorBoard events and trajectories. Where
    several processes have joined, all call this and process 0 writes.

    Args:
        recipe: built.
        workdir: of the run.
        profile_steps: steps of which a profile is left in workdir/profile.

    Raises:
        ValueError: workdir holds a run with another config.
        FloatingPointError: a loss or gradient is not finite.
        RuntimeError: more samples of a step were lost to faults than allowed.
    """
    return asyncio.run(_train(recipe, pathlib.Path(workdir), profile_steps))


async def _train(
    recipe: Recipe, workdir: pathlib.Path, profile_steps: Collection[int]
) -> tuple[Model, Any]:
    config = recipe.config
    num_steps, evals = config["num_steps"], config["eval"]["every"]
    keep, saves = config["checkpoint"]["keep"], config["checkpoint"]["every"]
    best = config["checkpoint"]["best"]
    logging.info("batch arithmetic:\n%s", batch_table(config))
    if recipe.stages:
        logging.info("stages:\n%s", stage_table(config))
    async with contextlib.AsyncExitStack() as stack:
        checkpoints = Checkpointer(
            workdir / "checkpoints", keep=keep, keep_best=bool(best)
        )
        stack.callback(checkpoints.close)
        first = checkpoints.latest() or 0
        open_workdir(
            workdir, config, latest=checkpoints.latest(), write=processes.is_writer()
        )
        model = recipe.model()
        stages, early = Stages(recipe), EarlyStop(config["early_stop"])
        held_out = recipe.eval_tasks()[: config["eval"]["problems"]]
        device, state = build_device(
            recipe, model, temperature=config["rollout"]["temperature"]
        )
        ref_params = _reference(config, state)
        if first:
            state, extra = checkpoints.restore(state)
            stages.restore(extra["stages"], extra["stream"])
            early.restore(extra["early_stop"])
        files = None
        if processes.is_writer():
            files = RunFiles(workdir, config, first=first)
            stack.callback(files.close)
        weights = device.weights(state.params)
        services = await stack.enter_async_context(
            open_services(recipe, model, params=weights)
        )
        await services.engine.update_weights(weights, first)
        advance = stack.enter_context(
            progress("train", num_steps, unit="step", initial=first)
        )
        source = rollouts_of(stages, services, first=first, last=num_steps)
        stack.push_async_callback(source.aclose)
        clock = Clock()
        for step in range(first, num_steps):
            if early.reason:
                break
            with _profile(workdir, on=step in profile_steps):
                rollouts, stream_state = await anext(source)
                clock.lap("rollout")
                state, metrics, make_rows = await asyncio.to_thread(
                    _learn, recipe, device, state, rollouts, clock, step, ref_params
                )
                weights = device.weights(state.params)
                await services.engine.update_weights(weights, step + 1)
                clock.lap("publish")
            if evals and (step + 1) % evals == 0:
                playing = stages.recipe.config
                metrics |= await _evaluated(services, held_out, playing, step + 1)
                clock.lap("eval")
            metrics |= rollouts.metrics() | stages.metrics()
            metrics |= behavior.extinction(
                rollouts.trajectories, has_tools=bool(services.tools)
            )
            if stages.tell(step, metrics):
                stream_state = stages.stream.state()
            early.tell(metrics)
            clock.lap("log")
            timing = clock.metrics(tokens=rollouts.num_tokens) | services.timing()
            timing["time/tools_s"] = rollouts.tool_seconds
            timing |= device.rates(
                rollouts.kept_lengths, seconds=timing.get("time/update_s", 0.0)
            )
            if files:
                shown = rollouts.first(config["log"]["groups_per_step"])
                await asyncio.to_thread(
                    functools.partial(
                        files.write,
                        step,
                        metrics | timing,
                        make_truths=functools.partial(
                            token_truth, shown, chat=services.chat
                        ),
                        make_rows=make_rows,
                        decode=services.chat.decode,
                    )
                )
            _log_line(step, num_steps, metrics, timing)
            clock.lap("log")
            if (step + 1) % saves == 0 or step + 1 == num_steps or early.reason:
                if files:  # A checkpoint has the rows of all its steps.
                    await asyncio.to_thread(files.wait)
                extra = {"stream": stream_state, "stages": stages.state()}
                extra["early_stop"] = early.state()
                score = value_of(best, metrics) if best else None
                checkpoints.save(step + 1, state, extra, score=score)
            clock.lap("save")
            advance(1)
        if early.reason:
            _say_stopped(checkpoints, early.reason, config)
    return model, weights


def _say_stopped(
    checkpoints: Checkpointer, reason: str, config: Mapping[str, Any]
) -> None:
    checkpoints.wait()
    best, name = checkpoints.best(), config["checkpoint"]["best"]
    newest = checkpoints.latest()
    where = f"the newest checkpoint is {checkpoints.directory / str(newest)}"
    if best:
        step, score = best
        where += f", the best by {name} {checkpoints.directory / str(step)} ({score:g})"
    logging.warning(
        "stopped early, after %d of %d steps: %s; %s. To go on, change early_stop and "
        "run the same command",
        newest,
        config["num_steps"],
        reason,
        where,
    )


def _profile(workdir: pathlib.Path, *, on: bool) -> contextlib.AbstractContextManager:
    """A trace for XProf or Perfetto in workdir/profile while it is open."""
    return jax.profiler.trace(workdir / "profile") if on else contextlib.nullcontext()


async def _evaluated(
    services: Services, tasks: Sequence[Task], config: Mapping[str, Any], step: int
) -> dict[str, float]:
    """Metrics over all held-out tasks, of which each process plays its share."""
    services = dataclasses.replace(services, rollout=config["rollout"])
    share = processes.my_share(len(tasks))
    mine = tasks[share.start : share.stop]
    groups = await play_benchmark(
        services, mine, config=config, step=step, first=share.start
    )
    done = report(
        processes.exchange(groups),
        decode=services.chat.decode,
        seed=config["seed"],
        runs=config["eval"]["runs"],
    )
    return done.metrics()


def _learn(
    recipe: Recipe,
    device: Device,
    state: TrainState,
    rollouts: Rollouts,
    clock: Clock,
    step: int,
    ref_params: Any,
) -> tuple[TrainState, dict[str, float], Callable[[], list[dict]]]:
    """The new state, policy metrics, and () -> rows for the trace."""
    config = recipe.config
    if not rollouts.kept:
        logging.warning("step %d has no valid sample: no update", step)
        return state, {"policy/updates": 0.0, "policy/skipped_updates": 1.0}, list
    packed = pack_step(
        rollouts.kept,
        num_updates=config["batch"]["updates_per_step"],
        length=config["batch"]["row_length"],
        rows_multiple=device.rows,
        rng=np.random.default_rng([config["seed"], step, 2]),
    )
    clock.lap("pack")
    scores = score_step(device, state.params, packed.batch, ref_params=ref_params)
    clock.lap("score")
    targets = step_targets(device, packed, scores)
    measured = _score_metrics(scores, packed.batch)
    rounds = behavior.rounds_of(packed, scores.entropy)
    measured |= behavior.entropy_stats(rounds) | behavior.deliberation_stats(rounds)
    scheduled = {
        option: float(value(step, measured["policy/entropy"]))
        for option, value in recipe.schedules.items()
    }
    clock.lap("credit")
    state, metrics = update_step(device, state, packed, targets, scheduled)
    clock.lap("update")
    metrics |= measured | {f"policy/{k}": v for k, v in scheduled.items()}
    make_rows = functools.partial(
        trace.trace_rows,
        packed,
        scores=scores,
        advantages=targets.advantages,
        most_groups=config["log"]["groups_per_step"],
    )
    clock.lap("log")
    return state, metrics, make_rows


def _score_metrics(scores: Scores, batch: Batch) -> dict[str, float]:
    """Entropy, and how far the engine's log-probabilities are from the trainer's."""
    mismatch = _mismatch(scores.logprobs, batch.behavior_logprobs, batch.mask)
    return {
        "policy/entropy": stats.mean(scores.entropy[batch.mask]),
        **{name: float(x) for name, x in jax.device_get(mismatch).items()},
        **truth.mismatch_by_turn(scores, batch),
    }


def _reference(config: Mapping[str, Any], state: TrainState) -> Any:
    """A frozen copy of the first parameters, where a KL term asks for it."""
    if config["kl"]["name"] == "none":
        return None
    return jax.tree.map(jnp.copy, state.params)


def _log_line(step: int, num_steps: int, metrics, timing) -> None:
    logging.info(
        "step %d/%d: reward %.3f, score %.3f, calls %.2f, call success %.2f, entropy "
        "%.3f, grad norm %.2f, %.1f s",
        step + 1,
        num_steps,
        metrics["reward/mean"],
        metrics["reward/score_mean"],
        metrics["tool/calls_mean"],
        metrics["tool/success_fraction"],
        metrics.get("policy/entropy", 0.0),
        metrics.get("policy/grad_norm", 0.0),
        timing["time/step_s"],
    )
