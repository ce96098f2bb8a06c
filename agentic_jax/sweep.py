"""A sweep: the arms of a recipe, each run for every seed, and their summary."""

import ast
import csv
import importlib.util
import itertools
import json
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections.config_dict import ConfigDict

from agentic_jax.config import changed_keys
from agentic_jax.evaluation.seeds import compare_arms, last_values
from agentic_jax.monitor.writer import read_metrics
from agentic_jax.recipe import Recipe, build_rl, build_sft
from agentic_jax.training import rl, sft


def arms_of(
    config: str, *, variants: Sequence[str], grid: str
) -> dict[str, ConfigDict]:
    """The config of every arm, by the arm's name.

    Args:
        config: FILE.py or FILE.py:variant.
        variants: of FILE.py; none is the file as it is.
        grid: see parse_grid.

    Raises:
        ValueError: variants in both places, a malformed grid, a key whose section does
            not exist, or the same arm twice.
    """
    path, _, variant = config.partition(":")
    if variant and variants:
        raise ValueError(f"config {config!r} has a variant, and there is --variants")
    values = parse_grid(grid)
    varied = [key for key, options in values.items() if len(options) > 1]
    arms = {}
    for name in variants or [variant]:
        for point in itertools.product(*values.values()):
            chosen = dict(zip(values, point, strict=True))
            arm = load(path, name)
            for key, value in chosen.items():
                _set(arm, key, value)
            parts = [name] * bool(variants) + [f"{k}={chosen[k]}" for k in varied]
            label = re.sub(r"[^\w.,=+-]+", "_", ",".join(parts)) or "base"
            if label in arms:
                raise ValueError(
                    f"two arms are named {label!r}; is a value given twice?"
                )
            arms[label] = arm
    return arms


def parse_grid(grid: str) -> dict[str, list[Any]]:
    """{key: values} of KEY=VALUE,VALUE,...;KEY=VALUE,...

    Values are Python literals (0.2, True, [2, 2], 'text'); bare words are text.

    Raises:
        ValueError: a part is not KEY=VALUES, or a key occurs twice.
    """
    values: dict[str, list[Any]] = {}
    for part in filter(str.strip, grid.split(";")):
        key, equals, text = (x.strip() for x in part.partition("="))
        if not (key and equals and text) or key in values:
            raise ValueError(f"grid part {part!r} is not KEY=VALUE,..., each key once")
        try:
            values[key] = list(ast.literal_eval(f"[{text}]"))
        except (SyntaxError, ValueError):
            values[key] = [word.strip() for word in text.split(",")]
    return values


def load(path: str, variant: str) -> ConfigDict:
    """get_config(variant) of a config file, get_config() for "".

    Raises:
        FileNotFoundError: there is no such file.
    """
    if not pathlib.Path(path).is_file():
        raise FileNotFoundError(f"config file {path} does not exist")
    spec = importlib.util.spec_from_file_location("sweep_config", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_config(variant) if variant else module.get_config()


def seeded(config: ConfigDict, seed: int, *, keys: Sequence[str]) -> dict[str, Any]:
    """A plain copy with the seed under the keys and in place of "{seed}"."""
    copy = ConfigDict(config.to_dict())
    for key in keys:
        _set(copy, key, seed)
    return _filled(copy.to_dict(), seed)


def build(config: Mapping[str, Any]) -> Recipe:
    """An SFT recipe where the config has trajectories, else an RL recipe."""
    return build_sft(config) if "trajectories" in config else build_rl(config)


def is_finished(workdir: pathlib.Path, recipe: Recipe) -> bool:
    """Whether workdir holds this very run with its last model.

    Raises:
        ValueError: it holds a finished run of another config.
    """
    if not (workdir / "model").is_dir():
        return False
    old = json.loads((workdir / "config.json").read_text("utf-8"))
    changed = changed_keys(old, recipe.config)
    if changed:
        lines = [f"  {key}: {was!r} -> {now!r}" for key, (was, now) in changed.items()]
        raise ValueError(
            f"{workdir} holds a finished run of another config; take another --out, "
            "or set these back:\n" + "\n".join(lines)
        )
    return True


def train(recipe: Recipe, workdir: pathlib.Path) -> None:
    """Trains up to num_steps, or goes on; workdir/model is written last."""
    if "trajectories" in recipe.config:
        sft.train(recipe, workdir=workdir)
        return
    model, params = rl.train(recipe, workdir=workdir)
    sft.save_model(model, params, workdir / "model")


def write_summary(
    out: pathlib.Path, arms: Sequence[str], *, seeds: Sequence[int], last: int
) -> dict[str, dict[str, dict]]:
    """summary.json and summary.csv of the finished runs; see compare_arms.

    Args:
        out: of the sweep.
        arms: names, the baseline first.
        seeds: of each arm.
        last: see last_values.
    """
    results = {
        arm: {
            seed: last_values(read_metrics(run / "metrics.jsonl"), last=last)
            for seed in seeds
            if ((run := out / arm / f"seed_{seed}") / "model").is_dir()
        }
        for arm in arms
    }
    summary = compare_arms(results)
    out.mkdir(parents=True, exist_ok=True)
    _replace(out / "summary.json", json.dumps(summary, indent=1) + "\n")
    with (out / "summary.tmp").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(
            "arm metric mean low high change change_low change_high seeds".split()
        )
        for arm, metrics in summary.items():
            for metric, x in metrics.items():
                change = x["change"] or [None] * 3
                ends = (x["mean"], x["low"], x["high"], *change, len(x["seeds"]))
                rows.writerow([arm, metric, *ends])
    os.replace(out / "summary.tmp", out / "summary.csv")
    return summary


def table(
    summary: Mapping[str, Mapping[str, Mapping]], *, metrics: Sequence[str]
) -> str:
    """Lines of text: arms by those of the metrics that there are."""
    lines = []
    for metric in metrics:
        arms = {arm: m[metric] for arm, m in summary.items() if metric in m}
        lines += [
            f"{metric}: mean over seeds [95% interval]; change from the first arm"
        ]
        lines += [f"  {arm:<40} {_cells(x)}" for arm, x in arms.items()] if arms else []
    return "\n".join(lines)


def _cells(x: Mapping[str, Any]) -> str:
    cells = f"{x['mean']:.3f} {_ends(x['low'], x['high'])}  n={len(x['seeds'])}"
    if x["change"]:
        difference, low, high = x["change"]
        cells += f"  {difference:+.3f} {_ends(low, high)}"
    return cells


def _ends(low: float | None, high: float | None) -> str:
    return "[one seed]" if low is None else f"[{low:.3f}, {high:.3f}]"


def _set(config: ConfigDict, key: str, value: Any) -> None:
    """config.a.b = value for "a.b"; the last part may be new, what is before not."""
    *sections, last = key.split(".")
    for section in sections:
        if section not in config or not isinstance(config[section], ConfigDict):
            raise ValueError(f"config has no section {section!r} for {key}")
        config = config[section]
    with config.ignore_type():
        config[last] = value


def _filled(value: Any, seed: int) -> Any:
    if isinstance(value, Mapping):
        return {key: _filled(x, seed) for key, x in value.items()}
    return value.replace("{seed}", str(seed)) if isinstance(value, str) else value


def _replace(path: pathlib.Path, text: str) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, "utf-8")
    os.replace(temporary, path)
