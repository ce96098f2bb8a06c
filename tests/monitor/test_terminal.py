import io
import json

import pytest
from rich.console import Console

from agentic_jax.monitor.terminal import (
    clock_time,
    dashboard,
    plain_line,
    seconds_left,
    sparkline,
    watch,
)


def metrics(step, **more):
    row = {"step": step, "reward/mean": step / 4, "time/step_s": 10.0 * (step + 1)}
    return {**row, "policy/entropy": 0.5, **more}


def rendered(table):
    console = Console(file=io.StringIO(), width=100)
    console.print(table)
    return console.file.getvalue()


def test_a_line_has_what_the_row_has():
    accuracy = {"eval/avg@4": 0.75, "eval/avg@4_low": 0.7}
    rows = [metrics(0), metrics(1, **accuracy)]
    line = plain_line(rows, 4)  # 2 steps to go at (10 + 20) / 2 seconds.
    assert line == ("step 2/4: reward 0.25, entropy 0.5, eval/avg@4 0.75, 0:00:30 left")


def test_the_table_keeps_an_evaluation_that_the_newest_step_lacks():
    text = rendered(dashboard([metrics(0, **{"eval/avg@4": 0.75}), metrics(1)], 4))
    assert "step 2 of 4" in text and "eval/avg@4" in text and "▁█" in text
    assert "step 0 of 4, unknown left" in rendered(dashboard([], 4))


def test_durations_and_sparklines():
    assert seconds_left([metrics(3)], 4) == 0
    assert clock_time(3661.4) == "1:01:01"
    assert sparkline([0, 1, 0.5]) == "▁█▅"  # 0.5 of 7 is 3.5, to the even block 4.
    assert sparkline([2, 2]) == "▁▁"


def test_each_step_is_one_line_where_no_terminal_is(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"num_steps": 3}))
    console = Console(file=io.StringIO(), width=40)
    waits = []

    def grow(seconds):
        waits.append(seconds)
        with (tmp_path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(metrics(len(waits) - 1)) + "\n")

    watch(tmp_path, console=console, seconds=7.0, sleep=grow)
    lines = console.file.getvalue().rstrip("\n").split("\n")
    assert [line.split(":")[0] for line in lines] == [
        "step 1/3",
        "step 2/3",
        "step 3/3",
    ]
    assert waits == [7.0] * 3


def test_a_directory_without_a_run_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        watch(tmp_path, console=Console(file=io.StringIO()), seconds=1.0)
