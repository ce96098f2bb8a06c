"""What is evaluated: named benchmarks, read from a config's eval section."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agentic_jax.config import SLOT, bind, check
from agentic_jax.rewards.verifiers import VERIFIERS
from agentic_jax.sources import TASKS

OWN = {  # What a benchmark may set for itself instead of the eval section.
    "problems": int,
    "samples": int,
    "runs": int,
    "temperature": float,
    "top_p": float,
    "top_k": int,
}
_NAME = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Benchmark:
    """Held-out problems and how they are sampled and scored.

    Attributes:
        name: in tables, files and labels; "eval" for the recipe's own eval_tasks.
        tasks: () -> its tasks.
        verifier: async (Trajectory, Services) -> score in [0, 1].
        sampling: problems, samples, runs, temperature, top_p and top_k.
        source: its tasks and verifier as the config has them.
    """

    name: str
    tasks: Callable
    verifier: Callable
    sampling: Mapping[str, Any]
    source: Mapping[str, Any]


def benchmarks_of(config: Mapping[str, Any]) -> tuple[Benchmark, ...]:
    """The benchmarks of config["eval"]["benchmarks"], or eval_tasks alone if none.

    Args:
        config: of a recipe, plain.

    Raises:
        ValueError: a bad name, an unknown key, slot or option, or a number below 1.
    """
    section = config["eval"]
    shared = {key: section[key] for key in OWN}
    given = section["benchmarks"] or {"eval": {"tasks": config["eval_tasks"]}}
    found = []
    for name, spec in given.items():
        where = f"eval.benchmarks.{name}"
        if not _NAME.fullmatch(name):
            raise ValueError(f"{where}: a name has letters, digits, _ and - only")
        if not isinstance(spec, Mapping):
            raise ValueError(f"config key {where} is {spec!r}; a section is wanted")
        spec = {"verifier": config["verifier"], **shared, **spec}
        check(spec, {"tasks": SLOT, "verifier": SLOT, **OWN}, f"{where}.")
        for key in ("problems", "samples", "runs"):
            if spec[key] < 1:
                raise ValueError(
                    f"config key {where}.{key} is {spec[key]}; >= 1 wanted"
                )
        found.append(
            Benchmark(
                name=name,
                tasks=bind(spec["tasks"], TASKS),
                verifier=bind_verifier(spec["verifier"]),
                sampling={key: spec[key] for key in OWN},
                source={key: spec[key] for key in ("tasks", "verifier")},
            )
        )
    return tuple(found)


def bind_verifier(spec: Mapping[str, Any]) -> Callable:
    """The verifier that a config names; of by_task, every verifier's options too.

    Raises:
        ValueError: unknown name or option.
    """
    if spec["name"] == "by_task":
        for name, options in spec.get("options", {}).items():
            if name not in VERIFIERS:
                raise ValueError(
                    f"verifier.options.{name}: unknown verifier; known: "
                    f"{', '.join(VERIFIERS)}"
                )
            bind({"name": name, **options}, VERIFIERS)
    return bind(spec, VERIFIERS)
