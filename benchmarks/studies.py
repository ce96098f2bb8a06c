r"""Measures and plots a sweep's runs beyond their own metrics; see docs/results.md.

python -m benchmarks.studies models --runs=runs/studies/resampling \
    --arms=grpo,roc --config=configs/studies/resampling.py:grpo
python -m benchmarks.studies calls --runs=runs/studies/entropy_credit_useful \
    --arms=grpo_useful,sparse_useful
python -m benchmarks.studies plot --runs=DIR --arms=A,B --out=FILE.png \
    --metrics=reward/score_mean,policy/entropy

models: plays held-out problems with every final model, under one config for all;
calls: entropy before and after each call of the last steps, from the trajectories;
plot: metrics by step, means over seeds with 95% intervals;
table: rows of Markdown from RUNS/FILE.json, as launch.sweep and this script leave them.
"""

import argparse
import json
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import pyplot

from agentic_jax import sweep
from agentic_jax.evaluation.benchmark import evaluate_model
from agentic_jax.evaluation.seeds import compare_arms, t_interval
from agentic_jax.monitor.trace import read_trace, trace_path, trace_steps
from agentic_jax.monitor.writer import read_metrics
from agentic_jax.trajectory import Trajectory

Runs = Mapping[str, Mapping[int, pathlib.Path]]


def runs_of(directory: pathlib.Path, arms: Sequence[str]) -> Runs:
    """The finished runs of a sweep: arm to {seed: workdir}."""
    return {
        arm: {
            int(model.parent.name.removeprefix("seed_")): model.parent
            for model in sorted((directory / arm).glob("seed_*/model"))
        }
        for arm in arms
    }


def failed_calls(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Shares of failed calls, and calls per trajectory, in right and wrong answers.

    Returns:
        {"right/failed_calls_fraction", "right/calls_mean", the same under "wrong/"};
        a side without a call has no fraction, one without a trajectory nothing.
    """
    found = {}
    for side, right in (("right", True), ("wrong", False)):
        chosen = [t for t in trajectories if ((t.score or 0.0) >= 1.0) == right]
        statuses = [c.result.status for t in chosen for c in t.calls]
        if chosen:
            found[f"{side}/calls_mean"] = len(statuses) / len(chosen)
        if statuses:
            failed = sum(status != "ok" for status in statuses)
            found[f"{side}/failed_calls_fraction"] = failed / len(statuses)
    return found


def play_models(runs: Runs, config: str) -> dict[str, dict[int, dict[str, float]]]:
    """Estimates and failed_calls of every run's last model, all under one config."""
    path, _, variant = config.partition(":")
    measured: dict[str, dict[int, dict[str, float]]] = {}
    for arm, seeds in runs.items():
        measured[arm] = {}
        for seed, workdir in seeds.items():
            plain = sweep.seeded(sweep.load(path, variant), seed, keys=["seed"])
            plain["model"]["path"] = str(workdir / "model")
            recipe = sweep.build(plain)
            model = recipe.model()
            report = evaluate_model(recipe, model, model.params)
            played = [t for group in report.groups for t in group]
            measured[arm][seed] = report.metrics() | failed_calls(played)
    return measured


def entropy_of_calls(rows: Sequence[Mapping]) -> dict[str, float]:
    """How the policy's entropy changes at calls, by the trainer's own entropies.

    A turn's entropy is the mean over its sampled tokens; a call's change is that of the
    turn after it less that of its own. Calls without a turn after them do not count.

    Args:
        rows: of trajectories/step_*.jsonl.

    Returns:
        {"calls_mean", "change_mean" in nats, "reducing_fraction"}; without a call that
        counts only the first.
    """
    changes, calls = [], 0
    for row in rows:
        tokens = row["tokens"]
        mask = np.asarray(tokens["mask"], bool)
        turn = np.asarray(tokens["turn"])[mask]
        entropy = np.asarray(tokens["entropy"])[mask]
        means = [float(entropy[turn == t].mean()) for t in np.unique(turn)]
        for before, after, made in zip(means, means[1:], row["turns"], strict=False):
            changes += [after - before] * len(made["calls"])
        calls += sum(len(made["calls"]) for made in row["turns"])
    found = {"calls_mean": calls / max(len(rows), 1)}
    if changes:
        found["change_mean"] = float(np.mean(changes))
        found["reducing_fraction"] = float(np.mean(np.array(changes) < 0))
    return found


def measure_calls(runs: Runs, *, last: int) -> dict[str, dict[int, dict[str, float]]]:
    """entropy_of_calls over the last steps of every run."""
    return {
        arm: {
            seed: entropy_of_calls(
                [
                    row
                    for step in trace_steps(workdir)[-last:]
                    for row in read_trace(trace_path(workdir, step))
                ]
            )
            for seed, workdir in seeds.items()
        }
        for arm, seeds in runs.items()
    }


def plot(runs: Runs, metrics: Sequence[str], path: pathlib.Path) -> None:
    """One panel a metric: means over seeds by step, with 95% intervals."""
    figure, panels = pyplot.subplots(
        1, len(metrics), figsize=(4.2 * len(metrics), 3.2), squeeze=False
    )
    for panel, metric in zip(panels[0], metrics, strict=True):
        for arm, seeds in runs.items():
            rows = [read_metrics(w / "metrics.jsonl") for w in seeds.values()]
            curves = np.array([[r[metric] for r in run if metric in r] for run in rows])
            steps = [r["step"] + 1 for r in rows[0] if metric in r]
            middle, low, high = np.array([t_interval(x) for x in curves.T]).T
            (line,) = panel.plot(steps, middle, label=arm)
            panel.fill_between(steps, low, high, color=line.get_color(), alpha=0.12)
        panel.set(xlabel="step", title=metric)
    panels[0][0].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=75)


def table(summary: Mapping[str, Mapping], metrics: Sequence[str]) -> str:
    """Markdown: arms by metrics, mean [interval] and the change from the first arm."""
    lines = [
        "| arm | " + " | ".join(metrics) + " |",
        "| --- " * (len(metrics) + 1) + "|",
    ]
    for arm, measured in summary.items():
        cells = [_cell(measured.get(metric)) for metric in metrics]
        lines.append(f"| {arm} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(x: Mapping | None) -> str:
    if x is None:
        return "-"
    text = f"{x['mean']:.3f}"
    if x["low"] is not None:
        text += f" [{x['low']:.3f}, {x['high']:.3f}]"
    if x["change"] and x["change"][1] is not None:
        change, low, high = x["change"]
        text += f"; {change:+.3f} [{low:+.3f}, {high:+.3f}]"
    return text


def main() -> None:
    """Writes RUNS/models.json, RUNS/calls.json or the plot, or prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("models", "calls", "plot", "table"))
    parser.add_argument("--runs", type=pathlib.Path, required=True)
    parser.add_argument("--arms", type=lambda text: text.split(","), required=True)
    parser.add_argument("--config", help="FILE.py:variant that all models play under")
    parser.add_argument("--metrics", type=lambda text: text.split(","), default=[])
    parser.add_argument("--out", type=pathlib.Path, help="PNG file of the plot")
    parser.add_argument("--name", help="of the JSON file, without its ending")
    options = parser.parse_args()
    runs = runs_of(options.runs, options.arms)
    file = options.runs / f"{options.name or options.what}.json"
    match options.what:
        case "plot":
            plot(runs, options.metrics, options.out)
        case "table":
            summary = json.loads(file.read_text("utf-8"))
            print(table({a: summary[a] for a in options.arms}, options.metrics))
        case what:
            measured = (
                play_models(runs, options.config)
                if what == "models"
                else measure_calls(runs, last=5)
            )
            file.write_text(json.dumps(compare_arms(measured), indent=1), "utf-8")


if __name__ == "__main__":
    main()
