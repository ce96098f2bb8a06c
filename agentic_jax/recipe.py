"""A recipe: a config with every name bound to its function and every number checked."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import optax

from agentic_jax.config import OPEN, SLOT, bind, check
from agentic_jax.data.draw import DRAWS
from agentic_jax.evaluation.spec import OWN, Benchmark, benchmarks_of, bind_verifier
from agentic_jax.losses import (
    AGGREGATIONS,
    CORRECTIONS,
    CREDITS,
    KLS,
    LOG_RATIOS,
    SCHEDULES,
    SURROGATES,
)
from agentic_jax.losses.policy import policy_loss
from agentic_jax.losses.sft import cross_entropy
from agentic_jax.rewards.shaping import REWARDS
from agentic_jax.rollout.explore import EXPLORATIONS
from agentic_jax.rollout.select import SELECTIONS
from agentic_jax.sources import MODELS, TASKS
from agentic_jax.training.conditions import EarlyStop
from agentic_jax.training.optimizer import OPTIMIZERS
from agentic_jax.training.stages import Start, read_stages

_HOST = {  # What a rollout needs: the sections that every recipe has.
    "seed": int,
    "num_steps": int,
    "model": SLOT,
    "eval_tasks": SLOT,
    "chat": {"format": str, "system": str, "list_tools": bool},
    "tools": OPEN,
    "sandbox": SLOT,
    "verifier": SLOT,
    "rollout": {
        "max_turns": int,
        "max_prompt_tokens": int,
        "max_response_tokens": int,
        "temperature": float,
        "top_p": float,
        "top_k": int,
        "top_logprobs": int,
        "concurrency": int,
    },
    "engine": SLOT,
    "eval": {
        "every": int,
        **OWN,
        "benchmarks": OPEN,
    },
    "optimizer": SLOT,
    "mesh": OPEN,
    "checkpoint": {"every": int, "keep": int, "best": str},
}
RL_SCHEMA = {
    **_HOST,
    "prompts_per_step": int,
    "group_size": int,
    "refill_rounds": int,
    "overlap": bool,
    "max_fault_fraction": float,
    "tasks": SLOT,
    "draw": SLOT,
    "explore": SLOT,
    "reward": SLOT,
    "select": SLOT,
    "credit": SLOT,
    "log_ratio": SLOT,
    "surrogate": SLOT,
    "aggregation": SLOT,
    "correction": SLOT,
    "kl": SLOT,
    "kl_coef": float,
    "entropy_coef": float,
    "batch": {
        "updates_per_step": int,
        "row_length": int,
        "rows_per_microbatch": int,
        "logprob_chunk": int,
    },
    "log": {"groups_per_step": int},
    "stages": list,
    "early_stop": OPEN,
}
SFT_SCHEMA = {
    **_HOST,
    "trajectories": str,
    "trajectories_per_step": int,
    "stop_at_score": float,
    "batch": {"row_length": int, "rows_per_microbatch": int, "logprob_chunk": int},
}


@dataclass(frozen=True)
class Recipe:
    """The functions that a config names, ready to call, beside the plain config.

    Attributes:
        config: nested plain dict; every number is read from here.
        model: () -> sources.Model.
        tasks: () -> training tasks; None for SFT.
        draw: (count, seed) -> the order in which they are drawn; None for SFT.
        eval_tasks: () -> held-out tasks.
        verifier: async (Trajectory, Services) -> score in [0, 1].
        benchmarks: what launch.evaluate evaluates; at least one.
        optimizer: of the parameters.
        loss: (logprobs, entropy, Targets, **scheduled) -> (value, metrics).
        schedules: option of the surrogate that moves -> (step, entropy) -> value.
        explore, reward, select, credit, aggregation, correction: the slots; None for
            SFT.
        stages: when each later stage begins, and its recipe.
    """

    config: Mapping[str, Any]
    model: Callable
    eval_tasks: Callable
    verifier: Callable
    benchmarks: tuple[Benchmark, ...]
    optimizer: optax.GradientTransformation
    loss: Callable
    schedules: Mapping[str, Callable] = field(default_factory=dict)
    tasks: Callable | None = None
    draw: Callable | None = None
    explore: Callable | None = None
    stages: tuple[tuple[Start, "Recipe"], ...] = ()
    reward: Callable | None = None
    select: Callable | None = None
    credit: Callable | None = None
    aggregation: Callable | None = None
    correction: Callable | None = None


def build_rl(config: Mapping[str, Any]) -> Recipe:
    """The recipe of an RL run, before any device, file or server is touched.

    Raises:
        ValueError: an unknown key, name or option, a wrong type, or numbers that do
            not fit together; the message names them.
    """
    config = _plain(config)
    check(config, RL_SCHEMA)
    _check_rollout(config)
    _check_rl(config)
    EarlyStop(config["early_stop"])  # Raises for what is no condition.
    stages = tuple((start, build_rl(later)) for start, later in read_stages(config))
    schedules = {
        option: bind(value, SCHEDULES)
        for option, value in config["surrogate"].items()
        if isinstance(value, Mapping)
    }
    return Recipe(
        config=config,
        **_host_slots(config),
        tasks=bind(config["tasks"], TASKS),
        draw=bind(config["draw"], DRAWS),
        loss=_policy_loss(config),
        schedules=schedules,
        stages=stages,
        explore=bind(config["explore"], EXPLORATIONS),
        reward=bind(config["reward"], REWARDS),
        select=bind(config["select"], SELECTIONS),
        credit=bind(config["credit"], CREDITS),
        aggregation=bind(config["aggregation"], AGGREGATIONS),
        correction=bind(config["correction"], CORRECTIONS),
    )


def build_sft(config: Mapping[str, Any]) -> Recipe:
    """The recipe of a supervised run; raises like build_rl."""
    config = _plain(config)
    check(config, SFT_SCHEMA)
    _check_rollout(config)
    _at_least(config, "trajectories_per_step", 1)
    if config["checkpoint"]["best"]:
        raise ValueError(
            f"checkpoint.best is {config['checkpoint']['best']!r}; a supervised run "
            "keeps the newest only: set it to ''"
        )
    return Recipe(config=config, **_host_slots(config), loss=cross_entropy)


def batch_table(config: Mapping[str, Any]) -> str:
    """The batch arithmetic of an RL step, as lines of text."""
    prompts, group = config["prompts_per_step"], config["group_size"]
    updates, rows = config["batch"]["updates_per_step"], config["batch"]
    lines = [
        ("prompts per step", prompts, ""),
        ("samples per prompt", group, "group_size"),
        ("trajectories per step", prompts * group, f"{prompts} x {group}"),
        ("updates per step", updates, "updates_per_step"),
        ("prompts per update", prompts // updates, f"{prompts} / {updates}"),
        (
            "tokens per micro-batch",
            rows["rows_per_microbatch"] * rows["row_length"],
            f"{rows['rows_per_microbatch']} rows x {rows['row_length']}",
        ),
        (
            "largest trajectory",
            _longest(config),
            "max_prompt_tokens + max_response_tokens",
        ),
    ]
    return "\n".join(f"  {name:<24}{value:>8,}  {how}" for name, value, how in lines)


def _host_slots(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "model": bind(config["model"], MODELS),
        "eval_tasks": bind(config["eval_tasks"], TASKS),
        "verifier": bind_verifier(config["verifier"]),
        "benchmarks": benchmarks_of(config),
        "optimizer": bind(config["optimizer"], OPTIMIZERS)(),
    }


def _policy_loss(config: Mapping[str, Any]) -> Callable:
    surrogate = bind(config["surrogate"], SURROGATES)
    options = {
        "log_ratio": bind(config["log_ratio"], LOG_RATIOS),
        "kl": bind(config["kl"], KLS),
        "kl_coef": config["kl_coef"],
        "entropy_coef": config["entropy_coef"],
    }

    def loss(logprobs, entropy, targets, **scheduled):
        if not config["entropy_coef"]:  # Spares its backward pass.
            entropy = jax.lax.stop_gradient(entropy)
        return policy_loss(
            logprobs,
            targets,
            entropy=entropy,
            surrogate=functools.partial(surrogate, **scheduled),
            **options,
        )

    return loss


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Nested plain dicts, tuples as lists, as config.json has them."""
    if isinstance(config, Mapping) or hasattr(config, "items"):
        return {key: _plain(value) for key, value in config.items()}
    return [_plain(x) for x in config] if isinstance(config, list | tuple) else config


def _longest(config: Mapping[str, Any]) -> int:
    rollout = config["rollout"]
    return rollout["max_prompt_tokens"] + rollout["max_response_tokens"]


def _at_least(config: Mapping[str, Any], path: str, least: float) -> None:
    value = config
    for key in path.split("."):
        value = value[key]
    if value < least:
        raise ValueError(f"config key {path} is {value}; at least {least} is needed")


def _check_rollout(config: Mapping[str, Any]) -> None:
    for path, least in (
        ("num_steps", 1),
        ("rollout.max_turns", 1),
        ("rollout.max_prompt_tokens", 1),
        ("rollout.max_response_tokens", 1),
        ("rollout.concurrency", 1),
        ("rollout.top_logprobs", 0),
        ("eval.every", 0),
        ("eval.problems", 1),
        ("eval.samples", 1),
        ("eval.runs", 1),
        ("checkpoint.every", 1),
        ("checkpoint.keep", 1),
        ("batch.rows_per_microbatch", 1),
        ("batch.logprob_chunk", 1),
    ):
        _at_least(config, path, least)
    if config["batch"]["row_length"] < _longest(config):
        raise ValueError(
            f"batch.row_length is {config['batch']['row_length']}, but a trajectory "
            f"may have {_longest(config)} tokens (rollout.max_prompt_tokens + "
            "max_response_tokens): raise the one or lower the others"
        )
    length = config["engine"].get("length")
    if length is not None and length < _longest(config):
        raise ValueError(
            f"engine.length is {length}, but prompt and response may have "
            f"{_longest(config)} tokens: raise it or lower rollout.max_*_tokens"
        )


def _check_rl(config: Mapping[str, Any]) -> None:
    _at_least(config, "refill_rounds", 0)
    bind(config["draw"], DRAWS)(1, config["seed"])  # Raises for numbers out of range.
    if config["reward"]["name"] == "sum":
        for term in config["reward"]["terms"].values():
            bind(term, REWARDS)
    if config["overlap"] and config["correction"]["name"] == "none":
        raise ValueError(
            "overlap trains on samples of older weights, but correction.name is "
            "'none'; set config.correction = {'name': 'tis', 'cap': 2.0}"
        )
    for path in ("prompts_per_step", "group_size", "batch.updates_per_step"):
        _at_least(config, path, 1)
    rollout = config["rollout"]
    if config["explore"]["name"] in ("arpo", "aepo") and not rollout["top_logprobs"]:
        raise ValueError(
            f"explore {config['explore']['name']!r} branches by the engine's entropy: "
            "set rollout.top_logprobs = 10"
        )
    if config["group_size"] < 2 and config["credit"]["name"] in CREDITS:
        raise ValueError(
            f"group_size is {config['group_size']}; the baseline of credit "
            f"{config['credit']['name']!r} is the rest of the group and needs >= 2"
        )
    if rollout["top_p"] != 1.0 or rollout["top_k"] != 0:
        raise ValueError(
            f"rollout.top_p is {rollout['top_p']}, top_k {rollout['top_k']}; training "
            "needs top_p 1 and top_k 0, or the engine samples from another "
            "distribution than the one that is trained (eval.top_p is free)"
        )
    if rollout["temperature"] <= 0:
        raise ValueError(
            f"rollout.temperature is {rollout['temperature']}; training samples, so it "
            "must be above 0"
        )
    prompts, updates = config["prompts_per_step"], config["batch"]["updates_per_step"]
    if prompts % updates:
        raise ValueError(
            f"prompts_per_step {prompts} does not divide into updates_per_step "
            f"{updates}: each update takes the same number of whole groups"
        )
    if config["kl"]["name"] == "none" and config["kl_coef"]:
        raise ValueError(f"kl_coef is {config['kl_coef']} but kl.name is 'none'")
