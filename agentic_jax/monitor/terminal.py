"""A run in the terminal: its newest numbers and how they came about."""

import contextlib
import json
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table

from agentic_jax.monitor.stats import mean
from agentic_jax.monitor.writer import read_metrics

FIELDS = {
    "reward": "reward/mean",
    "score": "reward/score_mean",
    "entropy": "policy/entropy",
    "calls ok": "tool/success_fraction",
    "tokens/s": "time/tokens_per_s",
    "fault share": "rollout/stop_fault_fraction",
}
BLOCKS = "▁▂▃▄▅▆▇█"
STEPS_OF_PACE = 20  # Steps that the time left is judged by.
WIDTH = 40


def watch(
    workdir: pathlib.Path,
    *,
    console: Console,
    seconds: float,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Shows a run until its last step is there; a line a step where no terminal is.

    Args:
        workdir: of the run.
        console: where to.
        seconds: between looks at its files.
        sleep: waits.

    Raises:
        FileNotFoundError: the workdir has no config.json.
    """
    config = json.loads((pathlib.Path(workdir) / "config.json").read_text("utf-8"))
    num_steps = config["num_steps"]
    with contextlib.ExitStack() as stack:
        if console.is_terminal:
            live = stack.enter_context(Live(console=console, auto_refresh=False))
        shown = -1
        while True:
            rows = read_metrics(pathlib.Path(workdir) / "metrics.jsonl")
            if console.is_terminal:
                live.update(dashboard(rows, num_steps), refresh=True)
            else:
                for end, row in enumerate(rows, start=1):
                    if row["step"] > shown:
                        line = plain_line(rows[:end], num_steps)
                        console.print(line, soft_wrap=True, highlight=False)
            shown = rows[-1]["step"] if rows else -1  # Less than before on a resume.
            if shown + 1 >= num_steps:
                return
            sleep(seconds)


def plain_line(rows: Sequence[Mapping[str, float]], num_steps: int) -> str:
    """The newest of the rows in words; what a row lacks is left out."""
    newest = rows[-1]
    values = [
        f"{name} {newest[key]:.4g}" for name, key in FIELDS.items() if key in newest
    ]
    values += [f"{key} {value:.4g}" for key, value in _evaluations(newest).items()]
    done = int(newest["step"]) + 1
    left = clock_time(seconds_left(rows, num_steps))
    return f"step {done}/{num_steps}: {', '.join(values)}, {left} left"


def dashboard(rows: Sequence[Mapping[str, float]], num_steps: int) -> Table:
    """A table of the newest numbers, each with its course over the last steps."""
    done = int(rows[-1]["step"]) + 1 if rows else 0
    left = clock_time(seconds_left(rows, num_steps)) if rows else "unknown"
    table = Table(
        title=f"step {done} of {num_steps}, {left} left", title_justify="left"
    )
    table.add_column("", style="dim")
    table.add_column("now", justify="right")
    table.add_column(f"last {WIDTH} steps")
    evaluations = {key: key for row in rows for key in _evaluations(row)}
    for name, key in (FIELDS | evaluations).items():
        values = [row[key] for row in rows if key in row]
        if values:
            table.add_row(name, f"{values[-1]:.4g}", sparkline(values[-WIDTH:]))
    return table


def seconds_left(rows: Sequence[Mapping[str, float]], num_steps: int) -> float:
    """Steps to go times the mean time of the last STEPS_OF_PACE steps."""
    pace = mean([row.get("time/step_s", 0.0) for row in rows[-STEPS_OF_PACE:]])
    return pace * max(num_steps - rows[-1]["step"] - 1, 0)


def clock_time(seconds: float) -> str:
    """H:MM:SS of a duration."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def sparkline(values: Sequence[float]) -> str:
    """One block per value between the lowest and the highest; all low if equal."""
    low, high = min(values), max(values)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((value - low) * scale)] for value in values)


def _evaluations(row: Mapping[str, float]) -> dict[str, float]:
    """The accuracies that an evaluation of this step gave."""
    return {
        key: value
        for key, value in row.items()
        if key.startswith("eval/avg@") and not key.endswith(("_low", "_high"))
    }
