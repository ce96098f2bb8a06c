"""Agentic RL: problems to trajectories to credit to new weights, in one loop."""

import asyncio
import contextlib
import functools
import pathlib
from collections.abc import Callable, Collection
from typing import Any

import jax
import numpy as np
from absl import logging

from agentic_jax.batch import Batch, Scores
from agentic_jax.losses.correction import mismatch_report
from agentic_jax.monitor import behavior, stats, trace, truth
from agentic_jax.monitor.clock import Clock
from agentic_jax.monitor.progress import progress
from agentic_jax.packing import pack_step
from agentic_jax.recipe import Recipe, batch_table
from agentic_jax.sources import Model
from agentic_jax.training.rollouts import Rollouts, rollouts_of
from agentic_jax.training.run import (
    Run,
    evaluate_held_out,
    open_run,
    save_checkpoint,
    say_stopped,
    step_times,
    write_step,
)
from agentic_jax.training.stages import stage_table
from agentic_jax.training.state import TrainState
from agentic_jax.training.update import (
    score_step,
    step_targets,
    update_step,
)

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
    saves = config["checkpoint"]["every"]
    logging.info("batch arithmetic:\n%s", batch_table(config))
    if recipe.stages:
        logging.info("stages:\n%s", stage_table(config))
    async with contextlib.AsyncExitStack() as stack:
        run, state, weights = await stack.enter_async_context(open_run(recipe, workdir))
        engine = run.services.engine
        advance = stack.enter_context(
            progress("train", num_steps, unit="step", initial=run.first)
        )
        source = rollouts_of(run.stages, run.services, first=run.first, last=num_steps)
        stack.push_async_callback(source.aclose)
        clock = Clock()
        for step in range(run.first, num_steps):
            if run.early.reason:
                break
            with _profile(workdir, on=step in profile_steps):
                rollouts, stream = await anext(source)
                clock.lap("rollout")
                state, metrics, make_rows = await asyncio.to_thread(
                    _learn, run, state, rollouts, clock, step
                )
                weights = run.device.weights(state.params)
                await engine.update_weights(weights, step + 1)
                clock.lap("publish")
            if evals and (step + 1) % evals == 0:
                metrics |= await evaluate_held_out(run, step + 1)
                clock.lap("eval")
            metrics |= rollouts.metrics() | run.stages.metrics()
            metrics |= behavior.extinction(
                rollouts.trajectories, has_tools=bool(run.services.tools)
            )
            if run.stages.tell(step, metrics):
                stream = run.stages.stream.state()
            run.early.tell(metrics)
            clock.lap("log")
            times = step_times(run, rollouts, clock)
            await write_step(run, step, metrics | times, rollouts, make_rows)
            _log_line(step, num_steps, metrics, times)
            clock.lap("log")
            if (step + 1) % saves == 0 or step + 1 == num_steps or run.early.reason:
                await save_checkpoint(
                    run, step + 1, state, stream=stream, metrics=metrics
                )
            clock.lap("save")
            advance(1)
        if run.early.reason:
            say_stopped(run)
    return run.model, weights


def _profile(workdir: pathlib.Path, *, on: bool) -> contextlib.AbstractContextManager:
    """A trace for XProf or Perfetto in workdir/profile while it is open."""
    return jax.profiler.trace(workdir / "profile") if on else contextlib.nullcontext()


def _learn(
    run: Run, state: TrainState, rollouts: Rollouts, clock: Clock, step: int
) -> tuple[TrainState, dict[str, float], Callable[[], list[dict]]]:
    """The new state, policy metrics, and () -> rows for the trace."""
    config, device = run.recipe.config, run.device
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
    scores = score_step(device, state.params, packed.batch, ref_params=run.ref_params)
    clock.lap("score")
    targets = step_targets(device, packed, scores)
    measured = _score_metrics(scores, packed.batch)
    rounds = behavior.rounds_of(packed, scores.entropy)
    measured |= behavior.entropy_stats(rounds) | behavior.deliberation_stats(rounds)
    scheduled = {
        option: float(value(step, measured["policy/entropy"]))
        for option, value in run.recipe.schedules.items()
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


def _log_line(step: int, num_steps: int, metrics, times) -> None:
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
        times["time/step_s"],
    )
