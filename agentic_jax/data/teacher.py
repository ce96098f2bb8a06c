"""SFT trajectories from a scripted teacher whose calls are really run."""

import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from agentic_jax.chat.template import Chat
from agentic_jax.data.rows import write_rows
from agentic_jax.rollout.collect import Play, collect
from agentic_jax.rollout.engine import SamplingParams
from agentic_jax.rollout.episode import Limits, run_episode
from agentic_jax.rollout.scripted import ScriptedEngine
from agentic_jax.tools.base import Tool
from agentic_jax.trajectory import Task, Trajectory, to_json


async def play_teacher(
    tasks: Sequence[Task],
    turns: Mapping[str, Sequence[str]],
    *,
    chat: Chat,
    tools: Mapping[str, Tool],
    limits: Limits,
    concurrency: int,
    on_done: Callable[[Trajectory], None],
) -> list[Trajectory]:
    """One trajectory per task: the teacher's words, the tools' real answers.

    Args:
        tasks: problems with distinct ids.
        turns: task id to what the teacher writes, turn by turn, without the
            end-of-turn token.
        chat: renders and parses like the policy's.
        tools: run the calls.
        limits: of an episode.
        concurrency: episodes at one time.
        on_done: called after each, for progress.

    Returns:
        Trajectories whose sampled tokens are the teacher's, with log-probability 0.
    """
    play = scripted_player(
        lambda task, g: turns[task.id], chat=chat, tools=tools, limits=limits
    )
    groups = await collect(
        tasks, play, group_size=1, concurrency=concurrency, on_done=on_done
    )
    return [group[0] for group in groups]


def scripted_player(
    say: Callable[[Task, int], Sequence[str]],
    *,
    chat: Chat,
    tools: Mapping[str, Tool],
    limits: Limits,
) -> Play:
    """(task, prompt index, sample index) -> an unscored trajectory of given words.

    Args:
        say: (task, sample index) -> what the teacher writes, turn by turn, without the
            end-of-turn token.
        chat, tools, limits: as for play_teacher.
    """
    end = chat.decode([chat.end_of_turn_id])
    sampling = SamplingParams(max_tokens=limits.max_response_tokens)

    async def play(task: Task, p: int, g: int) -> Trajectory:
        replies = {task.id: [text + end for text in say(task, g)]}
        return await run_episode(
            task,
            ScriptedEngine(replies, encode=chat.encode),
            chat=chat,
            tools=tools,
            limits=limits,
            sampling=sampling,
            seed_of_turn=lambda turn: 0,
            session=task.id,
        )

    return play


def mixed_modes(
    count: int, fractions: Mapping[str, float], rng: np.random.Generator
) -> list[str]:
    """`count` mode names in random order, in the given proportions.

    Raises:
        ValueError: the fractions do not sum to 1.
    """
    if abs(sum(fractions.values()) - 1.0) > 1e-6:
        raise ValueError(f"fractions {dict(fractions)} do not sum to 1")
    edges = np.rint(np.cumsum(list(fractions.values())) * count).astype(int)
    sizes = np.diff([0, *edges])
    return list(rng.permutation(np.repeat(list(fractions), sizes)))


def write_trajectories(path: pathlib.Path, trajectories: Iterable[Trajectory]) -> None:
    """Writes one to_json object a line, whole or not at all."""
    write_rows(path, map(to_json, trajectories))
