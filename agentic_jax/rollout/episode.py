"""Plays one problem from prompt to final answer."""

import asyncio
import dataclasses
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from absl import logging

from agentic_jax.chat.template import Chat
from agentic_jax.rollout.branching import step_entropy
from agentic_jax.rollout.engine import (
    Completion,
    Engine,
    EngineError,
    SamplingParams,
)
from agentic_jax.tools.base import Tool, call_tool, open_tools
from agentic_jax.trajectory import CallRecord, Task, ToolCall, Trajectory, Turn


@dataclass(frozen=True)
class Limits:
    """What one trajectory may use.

    Attributes:
        max_prompt_tokens: a longer prompt is an error of the task file.
        max_response_tokens: sampled and tool-result tokens together.
        max_turns: turns of the policy; the last one's calls are not run.
    """

    max_prompt_tokens: int
    max_response_tokens: int
    max_turns: int


async def run_episode(
    task: Task,
    engine: Engine,
    *,
    chat: Chat,
    tools: Mapping[str, Tool],
    limits: Limits,
    sampling: SamplingParams,
    seed_of_turn: Callable[[int], int],
    session: str,
    after: Sequence[Turn] = (),
) -> Trajectory:
    """Alternates generation and tool calls until the policy stops calling tools.

    Args:
        task: the problem.
        engine: continues token ids.
        chat: renders messages and results to ids and parses calls out of text.
        tools: by name; empty for a self-contained answer.
        limits: turns and tokens.
        sampling: max_tokens and seed are set here, per request.
        seed_of_turn: turn index to the seed of that turn's request.
        session: names the trajectory to the engine.
        after: turns of another trajectory to go on after, with their results. Their
            calls of tools that keep something are made once more, so that these hold
            what they held; what was answered stays as it was.

    Returns:
        A trajectory in every case, unscored. stop == "fault" means that a service of
        ours failed: it is kept for the log and never trained on.

    Raises:
        ValueError: the prompt is longer than the limit.
    """
    prompt = chat.render_prompt(task.messages)
    if len(prompt) > limits.max_prompt_tokens:
        raise ValueError(
            f"the prompt of task {task.id!r} has {len(prompt)} tokens, "
            f"max_prompt_tokens is {limits.max_prompt_tokens}"
        )
    turns = list(after)
    before = Trajectory(task, prompt, tuple(after), "answer")
    context = before.token_ids
    budget = limits.max_response_tokens - before.num_response_tokens

    def finish(stop, fault="") -> Trajectory:
        return Trajectory(task, prompt, tuple(turns), stop, fault=fault)

    try:
        async with open_tools(tools) as opened:
            await _replay(before.calls, tools, opened)
            for k in itertools.count(len(after)):
                params = dataclasses.replace(
                    sampling, max_tokens=budget, seed=seed_of_turn(k)
                )
                done = await engine.generate(context, params, session=session)
                turn = _turn(done, chat)
                turns.append(turn)
                budget -= len(done.token_ids)
                if done.stop != "stop":
                    return finish("max_tokens")
                parsed = chat.parse(chat.decode(done.token_ids))
                calls = parsed.calls
                if not calls or k + 1 == limits.max_turns:
                    return finish("max_turns" if calls else "answer")
                records = await asyncio.gather(*(_timed_call(c, opened) for c in calls))
                answers = [record.result for record in records]
                results = chat.render_results(done.token_ids, answers)
                spans = chat.token_spans(done.token_ids, parsed.spans)
                turn = dataclasses.replace(turn, calls=tuple(records), call_spans=spans)
                turns[-1] = turn
                if len(results) >= budget:  # No room is left to read and answer.
                    return finish("max_tokens")
                turns[-1] = dataclasses.replace(turn, result_token_ids=results)
                budget -= len(results)
                context = np.concatenate([context, done.token_ids, results])
    except (EngineError, OSError, TimeoutError) as error:
        fault = f"{type(error).__name__}: {error}"
        logging.warning("episode %s of task %s lost: %s", session, task.id, fault)
        return finish("fault", fault)
    finally:
        await engine.release(session)


def _turn(done: Completion, chat: Chat) -> Turn:
    entropy = None
    if done.top_logprobs is not None:
        entropy = step_entropy(done.top_logprobs, vocab_size=len(chat.tokenizer))
    return Turn(done.token_ids, done.logprobs, done.weight_version, entropy=entropy)


async def _replay(
    records: Sequence[CallRecord], tools: Mapping[str, Tool], opened: Mapping[str, Tool]
) -> None:
    """Makes once more, in order, the calls of tools that keep something."""
    for record in records:
        tool = tools.get(record.call.name)
        if tool is not None and tool.open is not None:
            await call_tool(record.call, opened)


async def _timed_call(call: ToolCall, tools: Mapping[str, Tool]) -> CallRecord:
    start = time.monotonic()
    result = await call_tool(call, tools)
    return CallRecord(call, result, time.monotonic() - start)
