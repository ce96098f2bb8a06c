"""Tables of results as Markdown, CSV or LaTeX."""

import csv
import io
import pathlib
from collections.abc import Callable, Mapping, Sequence

from agentic_jax.evaluation.compare import Comparison

Rows = Sequence[Sequence[str]]  # The first one is the header.


def result_rows(results: Mapping[str, Mapping]) -> list[list[str]]:
    """One row a benchmark and mode; scores are percentages with 95% intervals.

    Args:
        results: label to summary, as launch.evaluate writes them.

    Returns:
        A header and the rows; a number that one of them lacks is "".
    """
    rows = [
        [
            "benchmark",
            "problems",
            "samples",
            "avg@k",
            "std of runs",
            "pass@k",
            "maj@k",
            "calls",
            "call success",
            "response tokens",
        ]
    ]
    for label, summary in results.items():
        k = summary["samples"]
        std = summary.get("run_std")
        runs = summary.get("runs", 1)
        rows.append(
            [
                label,
                str(summary["problems"]),
                f"{runs} x {k}" if runs > 1 else str(k),
                _percent(summary[f"avg@{k}"], summary["ci95"]),
                "" if std is None else f"{100 * std:.1f}",
                _percent(summary[f"pass@{k}"], summary[f"pass@{k}_ci95"]),
                _percent(summary[f"maj@{k}"], summary[f"maj@{k}_ci95"]),
                f"{summary['tool/calls_mean']:.2f}",
                f"{100 * summary['tool/success_fraction']:.1f}",
                f"{summary['rollout/response_tokens_mean']:.0f}",
            ]
        )
    return rows


def comparison_rows(comparisons: Mapping[str, Comparison]) -> list[list[str]]:
    """One row a benchmark and mode: A, B, difference with interval, p-value."""
    rows = [["benchmark", "problems", "A", "B", "B - A", "p"]]
    for label, c in comparisons.items():
        rows.append(
            [
                label,
                str(c.problems),
                f"{100 * c.before:.1f}",
                f"{100 * c.after:.1f}",
                _percent(c.difference, (c.low, c.high), sign="+"),
                f"{c.p_value:.4f}",
            ]
        )
    return rows


def markdown(rows: Rows) -> str:
    """A pipe table."""
    head, *body = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def comma_separated(rows: Rows) -> str:
    """CSV with quotes where they are needed."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def latex(rows: Rows) -> str:
    """A tabular with the rules of booktabs."""
    escaped = [[_escape(cell) for cell in row] for row in rows]
    head, *body = [f"{' & '.join(row)} \\\\\n" for row in escaped]
    columns = "l" + "r" * (len(rows[0]) - 1)
    return (
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{head}\\midrule\n"
        f"{''.join(body)}\\bottomrule\n\\end{{tabular}}\n"
    )


FORMATS: dict[str, Callable[[Rows], str]] = {
    ".md": markdown,
    ".csv": comma_separated,
    ".tex": latex,
}


def write_table(rows: Rows, path: pathlib.Path) -> None:
    """Writes the table in the format that the file's ending names.

    Raises:
        ValueError: another ending than those of FORMATS.
    """
    check_ending(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(FORMATS[path.suffix](rows), "utf-8")


def check_ending(path: pathlib.Path) -> None:
    """Raises ValueError for a file whose ending names no format."""
    if path.suffix not in FORMATS:
        raise ValueError(f"table {str(path)!r} must end in {', '.join(FORMATS)}")


def _percent(value: float, interval: Sequence[float], sign: str = "") -> str:
    low, high = (f"{100 * x:{sign}.1f}" for x in interval)
    return f"{100 * value:{sign}.1f} [{low}, {high}]"


def _escape(cell: str) -> str:
    for special in "\\&%$#_{}~^":
        if special == "\\":
            cell = cell.replace(special, "\\textbackslash ")
        elif special in "~^":
            cell = cell.replace(special, f"\\{special}{{}}")
        else:
            cell = cell.replace(special, f"\\{special}")
    return cell
