import csv
import pathlib

import pytest

from agentic_jax.evaluation.compare import compare
from agentic_jax.evaluation.tables import (
    comparison_rows,
    latex,
    markdown,
    result_rows,
    write_table,
)

RESULT = {
    "aime_2025/tools": {
        **{"problems": 30, "samples": 2, "runs": 5, "run_std": 0.0123},
        **{"avg@2": 0.25, "ci95": [0.125, 0.5], "pass@2": 0.5, "maj@2": 0.0},
        **{"pass@2_ci95": [0.4, 0.6], "maj@2_ci95": [0.0, 0.1]},
        "tool/calls_mean": 1.234,
        "tool/success_fraction": 0.9,
        "rollout/response_tokens_mean": 100.4,
    }
}


def test_a_result_is_one_row_of_percentages():
    _, row = result_rows(RESULT)
    assert row == [
        *("aime_2025/tools", "30", "5 x 2", "25.0 [12.5, 50.0]", "1.2"),
        *("50.0 [40.0, 60.0]", "0.0 [0.0, 10.0]", "1.23", "90.0", "100"),
    ]


def test_differences_have_signs():
    found = compare({"a": [1.0], "b": [1.0]}, {"a": [0.0], "b": [0.0]}, seed=0)
    row = comparison_rows({"tools": found})[1]
    assert row[2:5] == ["100.0", "0.0", "-100.0 [-100.0, -100.0]"]


def test_each_format_escapes_what_it_must(tmp_path):
    rows = [["a|b", "50%"], ["x_1, y", "c\\d & 'e\""]]
    assert markdown(rows).splitlines()[:2] == ["| a\\|b | 50% |", "| --- | --- |"]
    text = latex(rows)
    assert "a|b & 50\\% \\\\\n\\midrule" in text
    assert "x\\_1, y & c\\textbackslash d \\& 'e\" \\\\" in text
    path = tmp_path / "deep" / "table.csv"
    write_table(rows, path)
    with path.open(newline="") as file:
        assert list(csv.reader(file)) == rows
    with pytest.raises(ValueError, match=r"\.md, \.csv, \.tex"):
        write_table(rows, pathlib.Path("table.txt"))
