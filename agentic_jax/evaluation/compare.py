"""Whether one of two checkpoints is better, from scores on the same problems."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from absl import logging

from agentic_jax.evaluation.estimators import paired_difference

Scores = Mapping[str, Sequence[float]]  # Task id -> the score of each sample.


@dataclass(frozen=True)
class Comparison:
    """Mean scores of A and B over the problems that both have.

    Attributes:
        problems: how many.
        before: mean score of A.
        after: of B.
        difference: after - before.
        low: of the 95% bootstrap interval of the difference, over problems.
        high: of the same.
        p_value: chance of a difference at least this large, either way, if for each
            problem it were a coin's toss which of the two is A.
        better: problems on which B's mean score is higher.
        worse: on which it is lower.
    """

    problems: int
    before: float
    after: float
    difference: float
    low: float
    high: float
    p_value: float
    better: int
    worse: int

    def __str__(self) -> str:
        """One line for people."""
        return (
            f"{self.before:.3f} -> {self.after:.3f}, difference {self.difference:+.3f} "
            f"[{self.low:+.3f}, {self.high:+.3f}], p {self.p_value:.4f}; better on "
            f"{self.better} and worse on {self.worse} of {self.problems} problems"
        )


def compare(before: Scores, after: Scores, *, seed: int) -> Comparison:
    """Compares the problems' mean scores, pair by pair.

    The numbers of samples may differ. Problems that only one side has are left out,
    with a warning.

    Args:
        before: scores of A.
        after: of B.
        seed: of bootstrap and permutations.

    Raises:
        ValueError: no problem in common, or one without a score.
    """
    shared = [task for task in before if task in after]
    if not shared:
        raise ValueError(
            f"of {len(before)} and {len(after)} problems none has the same id; compare "
            "results on the same benchmark"
        )
    unscored = [task for task in shared if not (before[task] and after[task])]
    if unscored:
        raise ValueError(f"problem {unscored[0]!r} has no score on one side")
    lonely = len(before) + len(after) - 2 * len(shared)
    if lonely:
        logging.warning("%d problems are on one side only and left out", lonely)
    a, b = (
        np.array([np.mean(s[task]) for task in shared], float) for s in (before, after)
    )
    difference, low, high = paired_difference(a, b, rng=np.random.default_rng(seed))
    return Comparison(
        problems=len(shared),
        before=float(a.mean()),
        after=float(b.mean()),
        difference=difference,
        low=low,
        high=high,
        p_value=permutation_p_value(b - a, rng=np.random.default_rng(seed)),
        better=int((b > a).sum()),
        worse=int((b < a).sum()),
    )


def permutation_p_value(
    differences: np.ndarray, *, rng: np.random.Generator, num_permutations: int = 10_000
) -> float:
    """Two-sided p-value of the mean of paired differences, by flips of their signs.

        (1 + #{|mean of s d| >= |mean of d|}) / (1 + num_permutations)

    Args:
        differences: [P].
        rng: decides the signs.
        num_permutations: how many; the p-value is never below 1 / (1 + this).

    Source: Fisher's randomisation test for pairs; Phipson and Smyth 2010 for the ones.
    """
    differences = np.asarray(differences, float)
    differences = differences[differences != 0]  # A flip does not change these.
    observed = abs(differences.sum())
    chunk = max(1, 1_000_000 // max(differences.size, 1))
    extreme = 0
    for start in range(0, num_permutations, chunk):
        shape = (min(chunk, num_permutations - start), differences.size)
        signs = rng.integers(2, size=shape, dtype=np.int8) * 2 - 1
        # Sums in another order differ by rounding: ties count as extreme.
        extreme += int((abs(signs @ differences) >= observed * (1 - 1e-9)).sum())
    return (1 + extreme) / (1 + num_permutations)


def compare_results(
    before: Mapping[str, Mapping], after: Mapping[str, Mapping], *, seed: int
) -> dict[str, Comparison]:
    """The comparison of each label that two result files share.

    Args:
        before: label to summary, as launch.evaluate writes them.
        after: likewise.
        seed: see compare.

    Raises:
        ValueError: no label in common, or results without scores.
    """
    shared = [label for label in before if label in after]
    if not shared:
        raise ValueError(
            f"results have no benchmark in common: {', '.join(before)}; "
            f"{', '.join(after)}"
        )
    for result in (before, after):
        for label in shared:
            if "scores" not in result[label]:
                raise ValueError(
                    f"{label} has no scores; evaluate again with this version"
                )
    return {
        label: compare(before[label]["scores"], after[label]["scores"], seed=seed)
        for label in shared
    }


def read_results(path: pathlib.Path) -> dict[str, dict]:
    """Label to summary, from a file that launch.evaluate wrote.

    Raises:
        ValueError: it is no such file.
    """
    try:
        results = json.loads(path.read_text("utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is no result file: {error}") from error
    if not isinstance(results, dict) or not all(
        isinstance(summary, dict) for summary in results.values()
    ):
        raise ValueError(f"{path} is no result file of launch.evaluate")
    return results


def comparison_json(comparisons: Mapping[str, Comparison]) -> dict[str, dict]:
    """Plain values, by label."""
    return {label: asdict(c) for label, c in comparisons.items()}
