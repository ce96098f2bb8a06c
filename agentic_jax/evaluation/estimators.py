"""Estimates of accuracy from repeated samples, with intervals over problems.

The estimators return one value per problem; their mean is the estimate, and
bootstrap_ci or standard_error of them is its uncertainty.
"""

import math
import statistics
from collections import Counter
from collections.abc import Sequence

import numpy as np


def avg_at_k(scores: np.ndarray) -> np.ndarray:
    """Mean score of each problem: [P, k] in [0, 1] to [P]."""
    return np.asarray(scores, float).mean(axis=1)


def pass_at_k(scores: np.ndarray, *, k: int) -> np.ndarray:
    """Chance that at least one of k samples is right, estimated from n >= k samples.

    Args:
        scores: [P, n] in [0, 1]; 1 is right and anything below it wrong.
        k: samples drawn, from 1 to n.

    Returns:
        [P] unbiased estimates.

    Raises:
        ValueError: k is above n; more samples are needed.
    """
    correct = (np.asarray(scores) >= 1.0).sum(axis=1)
    n = np.shape(scores)[1]
    return np.array([pass_at_k_of_counts(n, int(c), k=k) for c in correct])


def pass_at_k_of_counts(n: int, c: int, *, k: int) -> float:
    """Unbiased pass@k of one problem with c right samples of n.

        1 - C(n - c, k) / C(n, k), in exact integers

    Args:
        n: samples taken.
        c: right ones, from 0 to n.
        k: samples drawn, from 1 to n.

    Raises:
        ValueError: k is not in [1, n] or c not in [0, n].

    Source: Chen et al. 2021 (arXiv:2107.03374), eq. 1.
    """
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs at least {k} samples and k >= 1; n is {n}")
    if not 0 <= c <= n:
        raise ValueError(f"c is {c}; it counts right ones among n = {n} samples")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def maj_at_k(answers: Sequence[Sequence[str | None]], scores: np.ndarray) -> np.ndarray:
    """Whether the most common answer of each problem is right.

    Args:
        answers: P lists of k normalised answers; None and "" are one unparsed answer,
            which has a vote like any other.
        scores: [P, k] in [0, 1] of the same samples.

    Returns:
        [P]: the score of the first sample that gave the winner. Of answers with the
        same number of votes the one seen first wins.

    Raises:
        ValueError: answers and scores differ in shape.
    """
    shape = [len(row) for row in answers]
    if shape != [len(row) for row in scores]:
        raise ValueError(
            f"answers have {shape} samples, scores {np.shape(scores)}: they must match"
        )
    wins = []
    for row, row_scores in zip(answers, scores, strict=True):
        votes = [answer or "" for answer in row]
        # Counter keeps the order of first sight and most_common sorts stably.
        winner = Counter(votes).most_common(1)[0][0]
        wins.append(float(row_scores[votes.index(winner)]))
    return np.array(wins)


def standard_error(values: np.ndarray) -> float:
    """Standard error of the mean of one value per problem: std (ddof 1) / sqrt(P).

    Args:
        values: [P].

    Returns:
        NaN for fewer than two problems: one value says nothing about the spread.
    """
    values = np.asarray(values, float)
    if len(values) < 2:
        return math.nan
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def bootstrap_ci(
    values: np.ndarray,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    num_resamples: int = 10_000,
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean, problems drawn with replacement.

    Args:
        values: [P], one per problem.
        rng: decides the resamples.
        level: coverage.
        num_resamples: how many.

    Returns:
        (low, high); both are the value itself if all are equal, which for few problems
        is narrower than the truth: see wilson_interval.

    Raises:
        ValueError: no problem.
    """
    values = np.asarray(values, float)
    if values.size == 0:
        raise ValueError("no problem to resample; an interval needs at least one")
    # Chunks bound the memory at about 8 MB whatever the number of problems.
    chunk = max(1, 1_000_000 // values.size)
    means = []
    for start in range(0, num_resamples, chunk):
        shape = (min(chunk, num_resamples - start), values.size)
        means.append(values[rng.integers(values.size, size=shape)].mean(axis=1))
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(np.concatenate(means), [tail, 1.0 - tail])
    return float(low), float(high)


def wilson_interval(
    successes: int, trials: int, *, level: float = 0.95
) -> tuple[float, float]:
    """Wilson score interval of one success rate.

        (p + z^2/2n -+ z sqrt(p(1 - p)/n + z^2/4n^2)) / (1 + z^2/n)

    Args:
        successes: from 0 to trials.
        trials: independent, at least 1; samples of one problem are not.
        level: coverage.

    Raises:
        ValueError: counts out of range.

    Source: Wilson 1927.
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(
            f"{successes} of {trials} is no rate: need 0 <= s <= n, n >= 1"
        )
    z = statistics.NormalDist().inv_cdf(0.5 + level / 2.0)
    p = successes / trials
    center = p + z * z / (2 * trials)
    half = z * math.sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max((center - half) / scale, 0.0), min((center + half) / scale, 1.0)


def paired_difference(
    before: np.ndarray,
    after: np.ndarray,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    num_resamples: int = 10_000,
) -> tuple[float, float, float]:
    """Mean difference of two runs on the same problems, with a bootstrap interval.

    Args:
        before: [P], one value per problem.
        after: [P], of the same problems in the same order.
        rng: decides the resamples.
        level: coverage.
        num_resamples: how many.

    Returns:
        (mean of after - before, low, high). The runs differ at this level if 0 lies
        outside. Pairing takes the difficulty of the problems out of the noise.

    Raises:
        ValueError: the numbers of problems differ.
    """
    before, after = np.asarray(before, float), np.asarray(after, float)
    if before.shape != after.shape:
        raise ValueError(
            f"before {before.shape} and after {after.shape}: pairs need equal problems"
        )
    differences = after - before
    interval = bootstrap_ci(
        differences, rng=rng, level=level, num_resamples=num_resamples
    )
    return float(differences.mean()), *interval
