"""The host half of a training step: problems to rewarded and selected groups."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from absl import logging

from agentic_jax.data.tasks import TaskStream
from agentic_jax.monitor import behavior, stats
from agentic_jax.monitor.progress import progress
from agentic_jax.monitor.retrieval import retrieval_stats
from agentic_jax.recipe import Recipe
from agentic_jax.rewards.verifiers import policy_text
from agentic_jax.rollout.collect import collect
from agentic_jax.services import Services, make_player
from agentic_jax.training.processes import exchange, my_share, num_processes
from agentic_jax.training.stages import Stages
from agentic_jax.trajectory import Sample, Task, Trajectory


@dataclass(frozen=True)
class Rollouts:
    """What a step sampled.

    Attributes:
        played: every group, rewarded, in the order of its problems.
        kept: what selection left of them to be trained on; groups without a valid
            sample are left out.
        rounds: how often problems were drawn, at least 1.
        step: that they are for, which is the version of the weights they will improve.
        pools: metrics of the order in which problems are drawn, after this step.
    """

    played: list[list[Sample]]
    kept: list[list[Sample]]
    rounds: int
    step: int
    pools: Mapping[str, float]

    @property
    def trajectories(self) -> list[Trajectory]:
        """Every trajectory, faults too."""
        return [sample.trajectory for group in self.played for sample in group]

    @property
    def num_tokens(self) -> int:
        """Sampled and tool-result tokens."""
        return sum(t.num_response_tokens for t in self.trajectories)

    @property
    def kept_lengths(self) -> list[int]:
        """Tokens of each trajectory that is trained on, prompts too."""
        kept = [s.trajectory for group in self.kept for s in group if s.valid]
        return [len(t.token_ids) for t in kept]

    @property
    def tool_seconds(self) -> float:
        """Seconds of all tool calls together; they overlap."""
        return sum(c.seconds for t in self.trajectories for c in t.calls)

    def first(self, groups: int) -> list[Trajectory]:
        """The trajectories of the first so many groups."""
        return [s.trajectory for group in self.played[:groups] for s in group]

    def metrics(self) -> dict[str, float]:
        """Reward, rollout, tool and selection metrics."""
        kept = sum(len(group) for group in self.kept)
        return {
            **stats.reward_stats(self.played),
            **behavior.group_stats(self.played),
            **behavior.label_stats(self.trajectories),
            **stats.rollout_stats(self.trajectories),
            **stats.tool_stats(self.trajectories),
            **retrieval_stats(self.trajectories),
            **stats.staleness_stats(self.trajectories, version=self.step),
            **self.pools,
            "select/groups": float(len(self.kept)),
            "select/kept_fraction": kept / max(len(self.trajectories), 1),
            "select/rounds": float(self.rounds),
        }


async def rollouts_of(
    stages: Stages,
    services: Services,
    *,
    first: int,
    last: int,
) -> AsyncIterator[tuple[Rollouts, dict[str, Any]]]:
    """Each step's rollouts, and the stream's state after their problems.

    With config["overlap"] those of the next step are under way while one step's are
    used: they start on the weights from before its update, and go on with whatever
    weights the engine gets meanwhile. Each turn says by which it was sampled. A run
    that is resumed samples the step that was under way once more, on newer weights.

    Args:
        stages: give the recipe and the stream of each step; see roll_out.
        services: open.
        first: step to begin with.
        last: step to end before.

    Raises:
        ValueError: overlap in a run of several processes.
    """
    overlap = stages.recipe.config["overlap"]
    if overlap and num_processes() > 1:
        raise ValueError(
            f"overlap is on in a run of {num_processes()} processes, which exchange "
            "their rollouts in step; set config.overlap = False"
        )
    ahead: asyncio.Task | None = None
    try:
        for step in range(first, last):
            coming = ahead or roll_out(
                stages.recipe, services, stages.stream, step=step
            )
            rollouts = await coming
            state = stages.stream.state()
            if overlap and step + 1 < last:
                ahead = asyncio.create_task(
                    roll_out(stages.recipe, services, stages.stream, step=step + 1)
                )
            yield rollouts, state
    finally:
        if ahead:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)


async def roll_out(
    recipe: Recipe, services: Services, stream: TaskStream, *, step: int
) -> Rollouts:
    """Groups for one step; each process plays its share, and all get all of them.

    Where selection drops whole groups, as many new problems as are missing are drawn
    and played, at most config["refill_rounds"] times.

    Args:
        recipe: gives reward and selection.
        services: open; what trajectories may use is the recipe's.
        stream: of training problems; as many are taken as are played, and it is told
            their scores.
        step: of training; part of every seed.

    Raises:
        RuntimeError: more trajectories were lost to faults than allowed.
    """
    config = recipe.config
    services = dataclasses.replace(services, rollout=config["rollout"])
    wanted = config["prompts_per_step"]
    rng = np.random.default_rng([config["seed"], step, 1])
    played: list[list[Sample]] = []
    kept: list[list[Sample]] = []
    rounds = 0
    while len(kept) < wanted and rounds <= config["refill_rounds"]:
        tasks = stream.next(wanted - len(kept))
        groups = await _play(
            services, tasks, recipe.explore, config, step=step, first=len(played)
        )
        stream.tell([[t.score for t in g if t.stop != "fault"] for g in groups])
        new = [_rewarded(recipe, group, services.chat.decode) for group in groups]
        played += new
        selected = [recipe.select(group, rng=rng) for group in new]
        kept += [group for group in selected if any(s.valid for s in group)]
        rounds += 1
    _check_faults([s for group in played for s in group], config, step)
    if len(kept) < wanted:
        logging.info("step %d trains on %d of %d groups", step, len(kept), wanted)
    return Rollouts(played, kept, rounds, step, stream.metrics())


async def _play(
    services: Services,
    tasks: Sequence[Task],
    explore: Callable,
    config: Mapping[str, Any],
    *,
    step: int,
    first: int,
) -> list[list[Trajectory]]:
    """One group per task, `first` being the number of the first one in this step."""
    play = make_player(
        services,
        purpose="train",
        step=step,
        seed=config["seed"],
        sampling=config["rollout"],
        top_logprobs=config["rollout"]["top_logprobs"],
    )
    size = config["group_size"]
    share = my_share(len(tasks))
    mine = tasks[share.start : share.stop]
    with progress(f"step {step}", len(mine) * size, unit="trajectory") as advance:
        groups = await collect(
            mine,
            play,
            group_size=size,
            concurrency=config["rollout"]["concurrency"],
            first_prompt=first + share.start,
            explore=explore,
            seed=[config["seed"], step, 3],
            on_done=lambda trajectory: advance(1),
        )
    return exchange(groups)


def _rewarded(
    recipe: Recipe,
    group: Sequence[Trajectory],
    decode: Callable[[np.ndarray], str],
) -> list[Sample]:
    def sample(t: Trajectory) -> Sample:
        reward = 0.0 if t.stop == "fault" else recipe.reward(t.score, t)
        return Sample(t, reward, policy_text(t, decode))

    return [sample(t) for t in group]


def _check_faults(
    samples: Sequence[Sample], config: Mapping[str, Any], step: int
) -> None:
    faults = [s.trajectory.fault for s in samples if not s.valid]
    if len(faults) > config["max_fault_fraction"] * len(samples):
        raise RuntimeError(
            f"{len(faults)} of {len(samples)} trajectories of step {step} were lost to "
            f"faults, max_fault_fraction allows {config['max_fault_fraction']:g}; the "
            f"first: {faults[0]}. Mend it and run the same command: it resumes"
        )
