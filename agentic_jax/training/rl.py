"""Agentic RL: problems to trajectories to credit to new weights, in one loop."""

import asyncio
import contextlib
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from agentic_jax.data.tasks import TaskStream
from agentic_jax.evaluation.benchmark import evaluate
from agentic_jax.monitor import stats, trace
from agentic_jax.monitor.clock import Clock
from agentic_jax.monitor.progress import progress
from agentic_jax.monitor.writer import MetricWriter
from agentic_jax.packing import pack_step
from agentic_jax.recipe import Recipe, batch_table
from agentic_jax.rewards.verifiers import policy_text
from agentic_jax.rollout.collect import collect
from agentic_jax.services import Services, make_player, open_services
from agentic_jax.sources import Model
from agentic_jax.training.build import build_device
from agentic_jax.training.checkpoint import Checkpointer
from agentic_jax.training.state import TrainState
from agentic_jax.training.update import (
    Device,
    score_step,
    step_targets,
    update_step,
)
from agentic_jax.training.workdir import open_workdir
from agentic_jax.trajectory import Sample, Task, Trajectory


def train(recipe: Recipe, *, workdir: str | pathlib.Path) -> tuple[Model, Any]:
    """Runs the recipe up to its num_steps; returns the model and its new parameters.

    Starts from the newest checkpoint in workdir if there is one. Leaves there
    config.json, checkpoints, metrics.jsonl, TensorBoard events and trajectories.

    Raises:
        ValueError: workdir holds a run with another config.
        FloatingPointError: a loss or gradient is not finite.
        RuntimeError: more samples of a step were lost to faults than allowed.
    """
    return asyncio.run(_train(recipe, pathlib.Path(workdir)))


async def _train(recipe: Recipe, workdir: pathlib.Path) -> tuple[Model, Any]:
    config = recipe.config
    num_steps, evals = config["num_steps"], config["eval"]["every"]
    keep, saves = config["checkpoint"]["keep"], config["checkpoint"]["every"]
    logging.info("batch arithmetic:\n%s", batch_table(config))
    async with contextlib.AsyncExitStack() as stack:
        checkpoints = Checkpointer(workdir / "checkpoints", keep=keep)
        stack.callback(checkpoints.close)
        first = checkpoints.latest() or 0
        open_workdir(workdir, config, latest=checkpoints.latest())
        model = recipe.model()
        stream = TaskStream(recipe.tasks(), seed=config["seed"])
        held_out = recipe.eval_tasks()[: config["eval"]["problems"]]
        device, state = build_device(
            recipe, model, temperature=config["rollout"]["temperature"]
        )
        ref_params = _reference(config, state)
        if first:
            state, extra = checkpoints.restore(state)
            stream.restore(extra["stream"])
        writer = MetricWriter(workdir, next_step=first)
        stack.callback(writer.close)
        trace.drop_traces(workdir, from_step=first)
        services = await stack.enter_async_context(
            open_services(recipe, model, params=state.params)
        )
        await services.engine.update_weights(state.params, first)
        advance = stack.enter_context(
            progress("train", num_steps, unit="step", initial=first)
        )
        for step in range(first, num_steps):
            clock = Clock()
            tasks = stream.next(config["prompts_per_step"])
            groups = await _rollouts(services, tasks, config=config, step=step)
            samples = _rewarded(recipe, groups, step, decode=services.chat.decode)
            clock.lap("rollout")
            state, metrics, rows = _learn(
                recipe, device, state, samples, step=step, ref_params=ref_params
            )
            clock.lap("learn")
            await services.engine.update_weights(state.params, step + 1)
            if evals and (step + 1) % evals == 0:
                report = await evaluate(
                    services, held_out, config=config, step=step + 1
                )
                metrics |= report.metrics()
                clock.lap("eval")
            trace.write_trace(workdir, step, rows, decode=services.chat.decode)
            metrics |= _rollout_metrics(groups, samples)
            timing = clock.metrics(tokens=_count_tokens(groups))
            writer.write(step, metrics | timing | services.timing())
            if (step + 1) % saves == 0 or step + 1 == num_steps:
                checkpoints.save(step + 1, state, {"stream": stream.state()})
            _log_line(step, num_steps, metrics, timing)
            advance(1)
    return model, state.params


async def _rollouts(
    services: Services, tasks: Sequence[Task], *, config: Mapping[str, Any], step: int
) -> list[list[Trajectory]]:
    """One group per task; stops the run if too many were lost to faults."""
    play = make_player(
        services,
        purpose="train",
        step=step,
        seed=config["seed"],
        sampling=config["rollout"],
    )
    size = config["group_size"]
    with progress(f"step {step}", len(tasks) * size, unit="trajectory") as advance:
        groups = await collect(
            tasks,
            play,
            group_size=size,
            concurrency=config["rollout"]["concurrency"],
            on_done=lambda trajectory: advance(1),
        )
    faults = [t.fault for group in groups for t in group if t.stop == "fault"]
    allowed = config["max_fault_fraction"] * len(tasks) * size
    if len(faults) > allowed:
        raise RuntimeError(
            f"{len(faults)} of {len(tasks) * size} trajectories of step {step} were "
            f"lost to faults, max_fault_fraction allows {allowed:g}; the first: "
            f"{faults[0]}. Mend it and run the same command: it resumes"
        )
    return groups


def _rewarded(
    recipe: Recipe,
    groups: Sequence[Sequence[Trajectory]],
    step: int,
    *,
    decode: Callable[[np.ndarray], str],
) -> list[list[Sample]]:
    """Rewards on every trajectory, then what the selection keeps of each group."""
    rng = np.random.default_rng([recipe.config["seed"], step, 1])

    def sample(t: Trajectory) -> Sample:
        reward = 0.0 if t.stop == "fault" else recipe.reward(t.score, t)
        return Sample(t, reward, policy_text(t, decode))

    return [recipe.select([sample(t) for t in group], rng=rng) for group in groups]


def _learn(
    recipe: Recipe,
    device: Device,
    state: TrainState,
    samples: Sequence[Sequence[Sample]],
    *,
    step: int,
    ref_params: Any,
) -> tuple[TrainState, dict[str, float], list[dict]]:
    """The new state, policy metrics, and rows for the trace."""
    config = recipe.config
    kept = [group for group in samples if any(s.valid for s in group)]
    if not kept:
        logging.warning("step %d has no valid sample: no update", step)
        return state, {"policy/updates": 0.0, "policy/skipped_updates": 1.0}, []
    packed = pack_step(
        kept,
        num_updates=config["batch"]["updates_per_step"],
        length=config["batch"]["row_length"],
        rows_multiple=device.rows,
        rng=np.random.default_rng([config["seed"], step, 2]),
    )
    scores = score_step(device, state.params, packed.batch, ref_params=ref_params)
    targets = step_targets(device, packed, scores)
    measured = stats.score_stats(scores, packed.batch)
    scheduled = {
        option: float(value(step, measured["policy/entropy"]))
        for option, value in recipe.schedules.items()
    }
    state, metrics = update_step(device, state, packed, targets, scheduled)
    metrics |= measured | {f"policy/{k}": v for k, v in scheduled.items()}
    rows = trace.trace_rows(
        packed,
        scores=scores,
        advantages=targets.advantages,
        most_groups=config["log"]["groups_per_step"],
    )
    return state, metrics, rows


def _reference(config: Mapping[str, Any], state: TrainState) -> Any:
    """A frozen copy of the first parameters, where a KL term asks for it."""
    if config["kl"]["name"] == "none":
        return None
    return jax.tree.map(jnp.copy, state.params)


def _rollout_metrics(groups, samples) -> dict[str, float]:
    trajectories = [t for group in groups for t in group]
    return {
        **stats.reward_stats(samples),
        **stats.rollout_stats(trajectories),
        **stats.tool_stats(trajectories),
    }


def _count_tokens(groups: Sequence[Sequence[Trajectory]]) -> int:
    return sum(t.num_response_tokens for group in groups for t in group)


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
