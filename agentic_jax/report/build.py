"""A workdir's metrics and traces as files that a page loads one step at a time.

    index.html, *.js, *.css          the page
    data/runs.js                     every run: its config, metrics and steps
    data/RUN/steps/STEP.js           a line per trajectory
    data/RUN/texts/STEP.js           their texts, for the search
    data/RUN/groups/STEP/GROUP.js    the tokens of one group

Data files are scripts, because a page opened from a disk may load nothing else. Each
passes one JSON text to report.receive, which parses it: what a model wrote is no code.
"""

import hashlib
import importlib.resources
import itertools
import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentic_jax.config import changed_keys
from agentic_jax.monitor.trace import iterate_trace, trace_path, trace_steps
from agentic_jax.monitor.writer import read_metrics
from agentic_jax.report.rows import group_line, sample_detail, sample_line

SEED_KEYS = ("seed", "path")  # Leaves of a config in which runs of one recipe differ.
SIGNIFICANT_DIGITS = 6


@dataclass(frozen=True)
class Run:
    """A workdir in a report.

    Attributes:
        key: its folder below data/; the same for the same workdir, always.
        name: the shortest end of its path that no other run of the report has.
        workdir: absolute.
    """

    key: str
    name: str
    workdir: pathlib.Path


def open_runs(workdirs: Sequence[str | pathlib.Path]) -> list[Run]:
    """The runs that lie in the workdirs, in the same order.

    Raises:
        ValueError: a directory holds no run, or is given twice.
    """
    paths = [pathlib.Path(workdir).absolute() for workdir in workdirs]
    if not paths or len(set(paths)) < len(paths):
        raise ValueError(f"workdirs are {workdirs}; give each run once, at least one")
    for path in paths:
        if not (path / "metrics.jsonl").exists():
            below = [str(p.parent) for p in sorted(path.glob("*/metrics.jsonl"))]
            raise ValueError(
                f"{path} has no metrics.jsonl, so no run writes there"
                + (f"; runs lie in {', '.join(below)}" if below else "")
            )
    return [
        Run(hashlib.sha256(str(path).encode()).hexdigest()[:10], name, path)
        for path, name in zip(paths, _short_names(paths), strict=True)
    ]


def build_report(
    runs: Sequence[Run],
    out: pathlib.Path,
    *,
    on_step: Callable[[], None] = lambda: None,
) -> int:
    """Writes the page and the files of every step that are missing or out of date.

    Args:
        runs: from open_runs.
        out: made if it is missing.
        on_step: called after each step that was looked at, built or not.

    Returns:
        How many steps were built.

    Raises:
        ValueError: a trace was not written by monitor.trace.write_trace.
    """
    write_page(out)
    built = 0
    for run in runs:
        for step in trace_steps(run.workdir):
            built += build_step(run, step, out)
            on_step()
    write_runs(runs, out, live=False)
    return built


def write_page(out: pathlib.Path) -> None:
    """Copies the page's own files."""
    out.mkdir(parents=True, exist_ok=True)
    for asset in importlib.resources.files(__package__).joinpath("page").iterdir():
        (out / asset.name).write_bytes(asset.read_bytes())


def write_runs(runs: Sequence[Run], out: pathlib.Path, *, live: bool) -> None:
    """Writes data/runs.js.

    Args:
        runs: in the order in which the page lists them.
        out: the report's folder.
        live: whether the page may ask for this file again, to follow a running run.
    """
    records = [_run_record(run) for run in runs]
    _write_data(out, "runs", {"live": live, "runs": records})


def build_step(run: Run, step: int, out: pathlib.Path) -> bool:
    """Writes the files of one step unless they are newer than its trace.

    Returns:
        Whether it wrote them.

    Raises:
        FileNotFoundError: the step has no trace.
        ValueError: as build_report.
    """
    source = trace_path(run.workdir, step)
    stamp = f"{run.key}/steps/{step}"  # Written last.
    target = _data_path(out, stamp)
    changed = source.stat().st_mtime_ns
    if target.exists() and target.stat().st_mtime_ns >= changed:
        return False
    samples, groups, texts = [], [], []
    rows = iterate_trace(source)
    for group, members in itertools.groupby(rows, key=lambda row: row["group"]):
        members = list(members)
        groups.append(group_line(members))
        samples += [sample_line(row) for row in members]
        texts += [row["text"] for row in members]
        detail = {"samples": [sample_detail(row) for row in members]}
        _write_data(out, f"{run.key}/groups/{step}/{group}", detail)
    _write_data(out, f"{run.key}/texts/{step}", texts)
    _write_data(out, stamp, {"groups": groups, "samples": samples})
    return True


def _run_record(run: Run) -> dict[str, Any]:
    rows = read_metrics(run.workdir / "metrics.jsonl")
    names = sorted({name for row in rows for name in row} - {"step"})
    config_path = run.workdir / "config.json"
    config = json.loads(config_path.read_text("utf-8")) if config_path.exists() else {}
    leaves = {key: new for key, (_, new) in changed_keys({}, config).items()}
    return {
        "key": run.key,
        "name": run.name,
        "workdir": str(run.workdir),
        "config": leaves,
        "recipe": _recipe_digest(leaves),
        "steps": trace_steps(run.workdir),
        "x": [row["step"] for row in rows],
        "metrics": {
            name: [_rounded(row[name]) if name in row else None for row in rows]
            for name in names
        },
    }


def _recipe_digest(leaves: Mapping[str, Any]) -> str:
    """Equal for runs that differ in seeds and paths only."""
    kept = {k: v for k, v in leaves.items() if k.split(".")[-1] not in SEED_KEYS}
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()[:10]


def _rounded(value: float) -> float:
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def _short_names(paths: Sequence[pathlib.Path]) -> list[str]:
    depths = range(1, max(len(path.parts) for path in paths) + 1)
    for depth in depths:
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            break
    return names


def _data_path(out: pathlib.Path, name: str) -> pathlib.Path:
    return out / "data" / f"{name}.js"


def _write_data(out: pathlib.Path, name: str, value: Any) -> None:
    """Writes a script that hands over a JSON text, whole or not at all.

    The text becomes a string literal of ASCII characters, so no browser can read it in
    another encoding, and nothing in it ends the literal.
    """
    path = _data_path(out, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(
        f"report.receive({json.dumps(name)}, {json.dumps(text)});\n", encoding="ascii"
    )
    os.replace(temporary, path)
