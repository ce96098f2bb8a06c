"""What several seeds of a run say together: means with intervals over seeds.

An arm is one setting of a recipe, run once for each seed.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

Interval = tuple[float, float, float]  # Value, low, high.


def t_interval(values: Sequence[float], *, level: float = 0.95) -> Interval:
    """The mean of one value per seed, with Student's t interval.

        mean -+ t(1 - (1 - level) / 2, n - 1) std / sqrt(n),  std with ddof 1

    Args:
        values: [n], one per seed.
        level: coverage, if the values are near normal.

    Returns:
        (mean, low, high); for one value low and high are NaN: a single seed says
        nothing about the spread.

    Raises:
        ValueError: no value.
    """
    if not len(values):
        raise ValueError("no value; a mean over seeds needs at least one")
    center = float(np.mean(values))
    if len(values) < 2:
        return center, math.nan, math.nan
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    half = float(stats.t.ppf((1.0 + level) / 2.0, len(values) - 1)) * error
    return center, center - half, center + half


def paired_difference(
    values: Mapping[int, float], baseline: Mapping[int, float]
) -> Interval | None:
    """t_interval of the differences, seed by seed; None if no seed is in both.

    Args:
        values: seed to value.
        baseline: of the arm that is subtracted.
    """
    shared = sorted(values.keys() & baseline.keys())
    if not shared:
        return None
    return t_interval([values[seed] - baseline[seed] for seed in shared])


def last_values(rows: Sequence[Mapping[str, float]], *, last: int) -> dict[str, float]:
    """Each metric's mean over the last steps of a run.

    Args:
        rows: one dict a step, in order, as in metrics.jsonl.
        last: steps; rows among them that lack the metric do not count.

    Returns:
        Metrics that are in at least one of these rows, `step` left out.
    """
    found: dict[str, list[float]] = {}
    for row in rows[-last:]:
        for name, value in row.items():
            found.setdefault(name, []).append(value)
    return {n: float(np.mean(v)) for n, v in found.items() if n != "step"}


def compare_arms(
    arms: Mapping[str, Mapping[int, Mapping[str, float]]],
) -> dict[str, dict[str, dict]]:
    """Every metric of every arm over its seeds, and against the first arm.

    Args:
        arms: name to {seed: {metric: value}}; the first is the baseline.

    Returns:
        {arm: {metric: {"mean", "low", "high", "seeds": {seed: value}, "change"}}};
        `change` is paired_difference from the baseline, None for the baseline itself
        and where there is none. Intervals are 95%; NaN ends are None.
    """
    baseline = next(iter(arms), None)
    table: dict[str, dict[str, dict]] = {}
    for arm, runs in arms.items():
        table[arm] = {}
        for metric in sorted({name for run in runs.values() for name in run}):
            values = _by_seed(runs, metric)
            mean, low, high = map(_finite, t_interval(list(values.values())))
            change = None
            if arm != baseline:
                change = paired_difference(values, _by_seed(arms[baseline], metric))
            table[arm][metric] = {
                "mean": mean,
                "low": low,
                "high": high,
                "seeds": values,
                "change": change and [_finite(x) for x in change],
            }
    return table


def _by_seed(runs: Mapping[int, Mapping[str, float]], metric: str) -> dict[int, float]:
    return {seed: run[metric] for seed, run in runs.items() if metric in run}


def _finite(value: float) -> float | None:
    """JSON has no NaN."""
    return value if math.isfinite(value) else None
