"""Stages: one run whose lengths, problems or rewards change on the way."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from absl import logging

from agentic_jax.config import suggestion
from agentic_jax.data.tasks import TaskStream
from agentic_jax.training.conditions import Condition, Watch, read_condition

# What a later stage may set; everything else is compiled, or part of the weights.
MAY_SET = (
    *("rollout.max_response_tokens", "rollout.max_turns", "refill_rounds"),
    *("tasks", "draw", "explore", "reward", "select"),
)


@dataclass(frozen=True)
class Start:
    """When a stage begins.

    Attributes:
        step: it begins after so many steps; None where a condition says.
        condition: it begins after the step at which this holds; None where `step` says.
    """

    step: int | None
    condition: Condition | None

    def __str__(self) -> str:
        """In words."""
        return f"step {self.step}" if self.condition is None else str(self.condition)


def read_stages(config: Mapping[str, Any]) -> list[tuple[Start, dict[str, Any]]]:
    """When each of config["stages"] begins, and the whole config that then holds.

    An entry is {"after": {"step": N} or a condition, "set": {dotted key: value}}. What
    a stage sets stays set in those that follow.

    Args:
        config: plain and checked; it is the first stage itself.

    Raises:
        ValueError: an entry has other keys, sets what may not change or is not there,
            or its step is not after that of the stage before.
    """
    read: list[tuple[Start, dict[str, Any]]] = []
    current: Mapping[str, Any] = {**config, "stages": []}
    last = 0
    for i, entry in enumerate(config["stages"]):
        where = f"stages[{i}]"
        if not isinstance(entry, Mapping) or entry.keys() != {"after", "set"}:
            raise ValueError(
                f"config key {where} is {entry!r}; it takes 'after' and 'set'"
            )
        if not isinstance(entry["set"], Mapping):
            raise ValueError(f"config key {where}.set is no section of dotted keys")
        start = _read_start(entry["after"], f"{where}.after")
        if start.step is not None and start.step <= last:
            raise ValueError(
                f"config key {where}.after.step is {start.step}; wanted above {last}"
            )
        last = start.step or last
        current = copy.deepcopy(dict(current))
        for key, value in entry["set"].items():
            _set(current, key, value, f"{where}.set")
        read.append((start, dict(current)))
    return read


def stage_table(config: Mapping[str, Any]) -> str:
    """The stages of a config, as lines of text; "" if there is one."""
    lines = []
    for i, (start, _) in enumerate(read_stages(config)):
        lines.append(f"  stage {i + 1} after {start}")
        sets = config["stages"][i]["set"]
        lines += [f"    {key} = {value!r}" for key, value in sets.items()]
    return "\n".join(lines)


class Stages:
    """The recipe that holds now, and the stream of its problems.

    Args:
        recipe: built; its `stages` are the later ones.
    """

    def __init__(self, recipe: Any):
        self._later: Sequence[tuple[Start, Any]] = recipe.stages
        self._recipes = [recipe, *(later for _, later in recipe.stages)]
        self._enter(0)
        self.stream = self._open_stream()

    @property
    def recipe(self) -> Any:
        """Of the stage that the run is in."""
        return self._recipes[self.index]

    def tell(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Takes in the metrics of a step; True if the stream is another one now.

        With overlap, the rollouts that are under way are still of the old one.

        Raises:
            ValueError: see conditions.value_of.
        """
        if not self._begins(step, metrics):
            return False
        before = self.recipe.config
        logging.info(
            "stage %d begins after step %d: %s",
            self.index + 1,
            step + 1,
            self._later[self.index][0],
        )
        self._enter(self.index + 1)
        same = all(before[key] == self.recipe.config[key] for key in ("tasks", "draw"))
        if not same:
            self.stream = self._open_stream()
        return not same

    def metrics(self) -> dict[str, float]:
        """The number of the stage, from 0."""
        return {"data/stage": float(self.index)}

    def state(self) -> dict[str, Any]:
        """Plain JSON values, without those of the stream."""
        return {
            "index": self.index,
            "watch": None if self._watch is None else self._watch.state(),
        }

    def restore(self, state: Mapping[str, Any], stream: Mapping[str, Any]) -> None:
        """Goes on in the stage where the states were taken."""
        self._enter(state["index"])
        if state["watch"] is not None:
            self._watch.restore(state["watch"])
        self.stream = self._open_stream()
        self.stream.restore(stream)

    def _begins(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Whether the next stage begins after this step."""
        if self.index == len(self._later):
            return False
        if self._watch is None:
            return step + 1 >= self._later[self.index][0].step
        self._watch.tell(metrics)
        return self._watch.holds

    def _enter(self, index: int) -> None:
        self.index = index
        self._watch: Watch | None = None
        if index < len(self._later) and self._later[index][0].condition is not None:
            self._watch = Watch(self._later[index][0].condition)

    def _open_stream(self) -> TaskStream:
        recipe = self.recipe
        return TaskStream(recipe.tasks(), recipe.config["seed"], recipe.draw)


def _read_start(spec: Mapping[str, Any], where: str) -> Start:
    if not isinstance(spec, Mapping):
        raise ValueError(f"config key {where} is {spec!r}; a section is wanted")
    if spec.keys() == {"step"}:
        if type(spec["step"]) is not int or spec["step"] < 1:
            raise ValueError(
                f"config key {where}.step is {spec['step']!r}; wanted a whole number "
                "from 1 on"
            )
        return Start(spec["step"], None)
    return Start(None, read_condition(spec, where))


def _set(config: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Sets a dotted key that is there already, and that may change."""
    if not any(key == name or key.startswith(f"{name}.") for name in MAY_SET):
        raise ValueError(
            f"config key {where} sets {key!r}{suggestion(key, MAY_SET)}; a stage may "
            f"set {', '.join(MAY_SET)} and keys within these"
        )
    *path, last = key.split(".")
    section = config
    for name in path:
        if not isinstance(section.get(name), Mapping):
            raise ValueError(
                f"config key {where} sets {key!r}: there is no such section"
            )
        section = section[name]
    section[last] = value
