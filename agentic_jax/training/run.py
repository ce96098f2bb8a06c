"""What an RL run holds open, and what it writes: everything but its loop."""

import asyncio
import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from absl import logging

from agentic_jax.evaluation.benchmark import play_benchmark, report
from agentic_jax.monitor.clock import Clock
from agentic_jax.monitor.run_files import RunFiles
from agentic_jax.monitor.truth import token_truth
from agentic_jax.recipe import Recipe
from agentic_jax.services import Services, open_services
from agentic_jax.sources import Model
from agentic_jax.training import processes
from agentic_jax.training.build import build_device
from agentic_jax.training.checkpoint import Checkpointer
from agentic_jax.training.conditions import EarlyStop, value_of
from agentic_jax.training.rollouts import Rollouts
from agentic_jax.training.stages import Stages
from agentic_jax.training.state import TrainState
from agentic_jax.training.update import Device
from agentic_jax.training.workdir import open_workdir
from agentic_jax.trajectory import Task


@dataclass(frozen=True)
class Run:
    """What is open while a recipe is trained.

    Attributes:
        recipe: of the first stage.
        model: before training.
        held_out: problems of its evaluations.
        device: the jitted functions.
        services: sample and score.
        stages: the recipe and the problems that hold now.
        early: whether it shall end before its time.
        checkpoints: of this run.
        files: metrics and trajectories; None on a process that does not write.
        ref_params: of the frozen reference, None without one.
        first: step to begin with.
    """

    recipe: Recipe
    model: Model
    held_out: Sequence[Task]
    device: Device
    services: Services
    stages: Stages
    early: EarlyStop
    checkpoints: Checkpointer
    files: RunFiles | None
    ref_params: Any
    first: int


@contextlib.asynccontextmanager
async def open_run(
    recipe: Recipe, workdir: pathlib.Path
) -> AsyncIterator[tuple[Run, TrainState, Any]]:
    """The run with its state and the engine's weights, from the newest checkpoint.

    Args:
        recipe: built.
        workdir: of the run; an empty one starts fresh.

    Raises:
        ValueError: workdir holds a run with another config.
    """
    config = recipe.config
    async with contextlib.AsyncExitStack() as stack:
        checkpoints = Checkpointer(
            workdir / "checkpoints",
            keep=config["checkpoint"]["keep"],
            keep_best=bool(config["checkpoint"]["best"]),
        )
        stack.callback(checkpoints.close)
        latest = checkpoints.latest()
        open_workdir(workdir, config, latest=latest, write=processes.is_writer())
        model = recipe.model()
        stages, early = Stages(recipe), EarlyStop(config["early_stop"])
        held_out = recipe.eval_tasks()[: config["eval"]["problems"]]
        device, state = build_device(
            recipe, model, temperature=config["rollout"]["temperature"]
        )
        ref_params = _reference(config, state)
        if latest:
            state, extra = checkpoints.restore(state)
            stages.restore(extra["stages"], extra["stream"])
            early.restore(extra["early_stop"])
        files = None
        if processes.is_writer():
            files = RunFiles(workdir, config, first=latest or 0)
            stack.callback(files.close)
        weights = device.weights(state.params)
        services = await stack.enter_async_context(
            open_services(recipe, model, params=weights)
        )
        await services.engine.update_weights(weights, latest or 0)
        run = Run(
            recipe=recipe,
            model=model,
            held_out=held_out,
            device=device,
            services=services,
            stages=stages,
            early=early,
            checkpoints=checkpoints,
            files=files,
            ref_params=ref_params,
            first=latest or 0,
        )
        yield run, state, weights


async def evaluate_held_out(run: Run, step: int) -> dict[str, float]:
    """Metrics over all held-out tasks, of which each process plays its share."""
    config = run.stages.recipe.config
    services = dataclasses.replace(run.services, rollout=config["rollout"])
    share = processes.my_share(len(run.held_out))
    mine = run.held_out[share.start : share.stop]
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


def step_times(run: Run, rollouts: Rollouts, clock: Clock) -> dict[str, float]:
    """time/ metrics of a step; the next one begins with this call."""
    times = clock.metrics(tokens=rollouts.num_tokens) | run.services.timing()
    times["time/tools_s"] = rollouts.tool_seconds
    seconds = times.get("time/update_s", 0.0)
    return times | run.device.rates(rollouts.kept_lengths, seconds=seconds)


async def write_step(
    run: Run,
    step: int,
    metrics: Mapping[str, float],
    rollouts: Rollouts,
    make_rows: Callable[[], list[dict]],
) -> None:
    """Begins with the files of a step, when those of the one before are written.

    Args:
        run: open.
        step: number of the row.
        metrics: of the step.
        rollouts: of the step.
        make_rows: () -> rows of the trace.
    """
    if run.files is None:
        return
    chat = run.services.chat
    shown = rollouts.first(run.recipe.config["log"]["groups_per_step"])
    begin = functools.partial(
        run.files.write,
        step,
        metrics,
        make_truths=functools.partial(token_truth, shown, chat=chat),
        make_rows=make_rows,
        decode=chat.decode,
    )
    await asyncio.to_thread(begin)


async def save_checkpoint(
    run: Run,
    step: int,
    state: TrainState,
    *,
    stream: Mapping[str, Any],
    metrics: Mapping[str, float],
) -> None:
    """Starts a checkpoint, when the rows of all its steps are written.

    Args:
        run: open.
        step: how many are done.
        state: after them.
        stream: state of the problems' stream.
        metrics: of the last of these steps.
    """
    if run.files:
        await asyncio.to_thread(run.files.wait)
    best = run.recipe.config["checkpoint"]["best"]
    extra = {
        "stream": stream,
        "stages": run.stages.state(),
        "early_stop": run.early.state(),
    }
    score = value_of(best, metrics) if best else None
    run.checkpoints.save(step, state, extra, score=score)


def say_stopped(run: Run) -> None:
    """Why the run ended early, and where its checkpoints are."""
    checkpoints, config = run.checkpoints, run.recipe.config
    checkpoints.wait()
    newest, best = checkpoints.latest(), checkpoints.best()
    where = f"the newest checkpoint is {checkpoints.directory / str(newest)}"
    if best:
        step, score = best
        where += (
            f", the best by {config['checkpoint']['best']} "
            f"{checkpoints.directory / str(step)} ({score:g})"
        )
    logging.warning(
        "stopped early, after %d of %d steps: %s; %s. To go on, change early_stop and "
        "run the same command",
        newest,
        config["num_steps"],
        run.early.reason,
        where,
    )


def _reference(config: Mapping[str, Any], state: TrainState) -> Any:
    """A frozen copy of the first parameters, where a KL term asks for it."""
    if config["kl"]["name"] == "none":
        return None
    return jax.tree.map(jnp.copy, state.params)
