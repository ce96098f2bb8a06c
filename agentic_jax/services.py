"""Opens and closes what rollouts need: engine, sandbox, grader, chat and tools."""

import contextlib
import dataclasses
import inspect
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from absl import logging

from agentic_jax.chat.template import Chat
from agentic_jax.config import bind
from agentic_jax.recipe import Recipe
from agentic_jax.rewards import verifiers
from agentic_jax.rewards.grading import Grader, VerifierError
from agentic_jax.rollout.collect import Play
from agentic_jax.rollout.engine import Engine, SamplingParams
from agentic_jax.rollout.episode import Limits, run_episode
from agentic_jax.rollout.jax_engine import JaxEngine
from agentic_jax.rollout.remote import open_fleet
from agentic_jax.sandbox.client import Sandbox, SandboxClient
from agentic_jax.sources import Model
from agentic_jax.tools.base import Tool, limit_calls
from agentic_jax.tools.functions import function_tool
from agentic_jax.tools.python import python_session_tool, python_tool
from agentic_jax.tools.search import (
    passage_search_tool,
    retriever_tool,
    web_search_tool,
)
from agentic_jax.trajectory import Task, Trajectory, Turn

TOOLS: dict[str, Callable[..., Tool]] = {
    "python": python_tool,
    "python_session": python_session_tool,
    "function": function_tool,
    "search": passage_search_tool,
    "retriever": retriever_tool,
    "web_search": web_search_tool,
}


def make_tools(specs: Mapping[str, Mapping[str, Any]], sandbox: Any) -> dict[str, Tool]:
    """The tools that a config's `tools` section names, by the tools' own names.

    Args:
        specs: any key to {"name": a key of TOOLS or "module:factory", options}. Besides
            the factory's own options, `max_calls` bounds the calls of a trajectory.
        sandbox: given to the factories with a parameter of that name, to no other; None
            where config.sandbox.name is "none".

    Raises:
        ValueError: an unknown name or option, a tool that needs a sandbox where there
            is none, or two tools of one name.
    """
    tools: dict[str, Tool] = {}
    for key, spec in specs.items():
        options = {k: v for k, v in spec.items() if k != "max_calls"}
        factory = bind(options, TOOLS)
        if "sandbox" not in inspect.signature(factory).parameters:
            tool = factory()
        elif sandbox is None:
            raise ValueError(f"tools.{key} runs code, but sandbox.name is 'none'")
        else:
            tool = factory(sandbox)
        if "max_calls" in spec:
            tool = limit_calls(tool, spec["max_calls"])
        if tool.name in tools:
            raise ValueError(f"tools.{key}: there is a tool {tool.name!r} already")
        tools[tool.name] = tool
    return tools


def _sandbox_service(*, urls: Sequence[str]) -> SandboxClient:
    return SandboxClient(urls)


SANDBOXES: dict[str, Callable[..., Any]] = {
    "none": contextlib.nullcontext,
    "embedded": Sandbox,
    "service": _sandbox_service,
}


@dataclass(frozen=True)
class Services:
    """What plays and scores episodes.

    Attributes:
        engine: samples.
        chat: with the recipe's tools.
        tools: by name.
        verify: scores a finished trajectory; a fault stays a fault.
        resources: what verifiers use.
        rollout: the recipe's section of that name.
        system: system message, "" for none.
    """

    engine: Engine
    chat: Chat
    tools: Mapping[str, Tool]
    verify: Callable[[Trajectory], Awaitable[Trajectory]]
    resources: verifiers.Services
    rollout: Mapping[str, Any]
    system: str

    @property
    def limits(self) -> Limits:
        """Turns and tokens of an episode."""
        return Limits(
            self.rollout["max_prompt_tokens"],
            self.rollout["max_response_tokens"],
            self.rollout["max_turns"],
        )

    def with_system(self, task: Task) -> Task:
        """The task with the recipe's system message before its own messages."""
        if not self.system:
            return task
        message = {"role": "system", "content": self.system}
        return dataclasses.replace(task, messages=(message, *task.messages))

    def with_verifier(self, verifier: Callable) -> "Services":
        """The same services, scoring with another async (Trajectory, Services)."""
        verify = _make_verify(verifier, self.resources)
        return dataclasses.replace(self, verify=verify)

    def timing(self) -> dict[str, float]:
        """The engine's counters, as time/ metrics: a rerun need not repeat them."""
        return {f"time/engine_{k}": float(v) for k, v in self.engine.stats().items()}


@contextlib.asynccontextmanager
async def open_services(
    recipe: Recipe, model: Model, *, params: Any
) -> AsyncIterator[Services]:
    """Services that sample from `params`; everything is stopped on the way out.

    Args:
        recipe: built.
        model: gives the tokenizer and how parameters are run.
        params: first weights of the engine, version 0.
    """
    config = recipe.config
    async with contextlib.AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(bind(config["sandbox"], SANDBOXES)())
        grader = Grader()
        stack.callback(grader.close)
        tools = make_tools(config["tools"], sandbox)
        chat = Chat(
            model.tokenizer,
            tuple(tools.values()),
            format=config["chat"]["format"],
            list_tools=config["chat"]["list_tools"],
        )
        engine = bind(config["engine"], ENGINES)(params, model, chat)
        stack.push_async_callback(engine.close)
        resources = verifiers.Services(
            decode=chat.decode, grader=grader, sandbox=sandbox
        )
        yield Services(
            engine=engine,
            chat=chat,
            tools=tools,
            verify=_make_verify(recipe.verifier, resources),
            resources=resources,
            rollout=config["rollout"],
            system=config["chat"]["system"],
        )


def make_player(
    services: Services,
    *,
    purpose: str,
    step: int,
    seed: int,
    with_tools: bool = True,
    sampling: Mapping[str, Any],
    top_logprobs: int = 0,
) -> Play:
    """(task, prompt index, sample index, *turns) -> a finished, scored trajectory.

    It goes on after the turns of another one where such are given.

    Args:
        services: open.
        purpose: "train" or "eval": their random numbers are unrelated.
        step: of training; part of every seed, so a resumed run samples the same.
        seed: of the run.
        with_tools: False is the self-contained mode: the tools are neither listed nor
            run, and the first turn is the answer.
        sampling: temperature, top_p and top_k.
        top_logprobs: of how many likeliest tokens the engine shall tell; turns have an
            entropy if it is above 0.
    """
    chat, tools, limits = services.chat, services.tools, services.limits
    if not with_tools:
        chat, tools = dataclasses.replace(chat, tools=()), {}
        limits = dataclasses.replace(limits, max_turns=1)
    params = SamplingParams(
        max_tokens=limits.max_response_tokens,
        temperature=sampling["temperature"],
        top_p=sampling["top_p"],
        top_k=sampling["top_k"],
        stop_token_ids=chat.stop_token_ids,
        stop_strings=chat.stop_strings,
        top_logprobs=top_logprobs,
    )
    entropy = [seed, step, zlib.crc32(purpose.encode())]

    async def play(task: Task, p: int, g: int, *after: Turn) -> Trajectory:
        trajectory = await run_episode(
            services.with_system(task),
            services.engine,
            chat=chat,
            tools=tools,
            limits=limits,
            sampling=params,
            seed_of_turn=lambda k: _mixed([*entropy, p, g, k]),
            session=f"{purpose}-{step}-{p}-{g}",
            after=after,
        )
        return await services.verify(trajectory)

    return play


def _jax_engine(params: Any, model: Model, chat: Chat, **options: Any) -> Engine:
    return JaxEngine(params, model.config, decode=chat.decode, **options)


ENGINES: dict[str, Callable[..., Engine]] = {"jax": _jax_engine, "sglang": open_fleet}


def _mixed(numbers: list[int]) -> int:
    """One 31-bit seed of several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] >> 1)


def _make_verify(verifier: Callable, resources: verifiers.Services) -> Callable:
    async def verify(trajectory: Trajectory) -> Trajectory:
        if trajectory.stop == "fault":
            return trajectory
        try:
            score = await verifier(trajectory, resources)
        except VerifierError as error:
            logging.warning("task %s not scored: %s", trajectory.task.id, error)
            return dataclasses.replace(trajectory, stop="fault", fault=str(error))
        return dataclasses.replace(trajectory, score=score)

    return verify
