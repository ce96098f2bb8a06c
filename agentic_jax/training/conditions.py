"""Conditions on the metrics of a run: they end stages, and runs that collapse."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentic_jax.config import suggestion

_KINDS = ("above", "below", "drop")


@dataclass(frozen=True)
class Condition:
    """A metric beyond a limit for some steps in a row.

    Attributes:
        metric: its name, such as "policy/entropy".
        kind: "above" the limit, "below" it, or "drop": by more than the limit below the
            highest value that it had before.
        limit: of the metric, in its unit.
        steps: how many in a row; only steps that have the metric count.
    """

    metric: str
    kind: str
    limit: float
    steps: int

    def __str__(self) -> str:
        """In words, as for a message."""
        way = (
            "more than {} below its best" if self.kind == "drop" else self.kind + " {}"
        )
        return f"{self.metric} {way.format(f'{self.limit:g}')} for {self.steps} steps"


def read_condition(spec: Mapping[str, Any], where: str) -> Condition:
    """The condition of a config entry {"metric", "above" | "below" | "drop", "for"}.

    Args:
        spec: the entry.
        where: its key, for messages.

    Raises:
        ValueError: a key or a type is wrong, or the metric is one of time/, which
            differ from run to run.
    """
    kinds = [kind for kind in _KINDS if kind in spec]
    if len(kinds) != 1 or spec.keys() != {"metric", "for", kinds[0]}:
        raise ValueError(
            f"config key {where} has {sorted(spec)}; it takes metric, for, and one of "
            f"{', '.join(_KINDS)}"
        )
    metric, limit, steps = spec["metric"], spec[kinds[0]], spec["for"]
    if not isinstance(metric, str) or metric.startswith("time/"):
        raise ValueError(
            f"config key {where}.metric is {metric!r}; a metric's name is wanted, and "
            "none of time/, or a resumed run would take another course"
        )
    if type(limit) not in (int, float) or type(steps) is not int or steps < 1:
        raise ValueError(
            f"config key {where} has {kinds[0]} {limit!r} for {steps!r} steps; wanted "
            "a number and a whole number from 1 on"
        )
    return Condition(metric, kinds[0], float(limit), steps)


def value_of(name: str, metrics: Mapping[str, float]) -> float | None:
    """The value of a metric; None for one that a step can do without.

    That is one of eval/ at a step without evaluation, and one of policy/ at a step
    without an update.

    Raises:
        ValueError: there is no such metric.
    """
    area = name.partition("/")[0]
    made = {
        "eval": any(key.startswith("eval/") for key in metrics),
        "policy": metrics.get("policy/updates", 1) > 0,
    }
    if name in metrics or not made.get(area, True):
        return metrics.get(name)
    raise ValueError(
        f"no metric {name!r}{suggestion(name, metrics)}; there are "
        f"{', '.join(sorted(metrics))}"
    )


class Watch:
    """Whether a condition holds, told of one step after the other.

    Args:
        condition: what is watched for.
    """

    def __init__(self, condition: Condition):
        self.condition = condition
        self._held = 0
        self._best: float | None = None

    @property
    def holds(self) -> bool:
        """For as many steps in a row as the condition asks for."""
        return self._held >= self.condition.steps

    def tell(self, metrics: Mapping[str, float]) -> None:
        """Takes in a step; raises like value_of."""
        limit = self.condition.limit
        value = value_of(self.condition.metric, metrics)
        if value is None:
            return
        best = value if self._best is None else self._best
        beyond = {
            "above": value > limit,
            "below": value < limit,
            "drop": value < best - limit,
        }[self.condition.kind]
        self._held = self._held + 1 if beyond else 0
        self._best = max(best, value)

    def state(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"held": self._held, "best": self._best}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on where the state was taken."""
        self._held, self._best = state["held"], state["best"]


class EarlyStop:
    """Whether a run shall end before its time, told of one step after the other.

    Args:
        specs: config["early_stop"]: any name to a condition; one that holds is enough.

    Raises:
        ValueError: see read_condition.
    """

    def __init__(self, specs: Mapping[str, Any]):
        self._specs = specs
        self._watches = {
            name: Watch(read_condition(spec, f"early_stop.{name}"))
            for name, spec in specs.items()
        }

    @property
    def reason(self) -> str:
        """The conditions that hold, in words; "" if none does."""
        held = [w.condition for w in self._watches.values() if w.holds]
        return ", ".join(map(str, held))

    def tell(self, metrics: Mapping[str, float]) -> None:
        """Takes in a step; raises like Watch.tell."""
        for watch in self._watches.values():
            watch.tell(metrics)

    def state(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            name: {"spec": dict(self._specs[name]), **watch.state()}
            for name, watch in self._watches.items()
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on where the state was taken; conditions that changed start anew."""
        for name, watch in self._watches.items():
            if name in state and state[name]["spec"] == self._specs[name]:
                watch.restore(state[name])
