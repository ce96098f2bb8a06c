"""How hard problems are for a policy: solve rates, bins, and matching of their shares.

Source of the bins and of the matching: "Demystifying RL in Agentic Reasoning"
(arXiv:2510.11701), section 3.3. Pure functions.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import betainc, betaln

from agentic_jax.trajectory import Task

HARD, EASY = 0.25, 0.75
BINS = ("hard", "medium", "easy")
LABELS = ("unsolved", *BINS, "solved")


def solve_rate(scores: Sequence[float]) -> float:
    """The mean score: where answers are right or wrong, the share of right ones.

    Args:
        scores: of one problem's samples, in [0, 1], faults left out.

    Raises:
        ValueError: no scores.
    """
    if len(scores) == 0:
        raise ValueError("a solve rate needs at least one scored sample")
    return float(np.mean(scores))


def label_of(rate: float) -> str:
    """One of LABELS for a solve rate.

    0 is "unsolved" and 1 "solved": a group of such samples has no signal. "hard" goes
    up to 0.25 and "easy" begins at 0.75, both included.
    """
    if rate <= 0.0 or rate >= 1.0:
        return "unsolved" if rate <= 0.0 else "solved"
    if rate <= HARD:
        return "hard"
    return "easy" if rate >= EASY else "medium"


def histogram(labels: Sequence[str]) -> dict[str, float]:
    """The share of each of BINS among the labels that are in BINS; 0 if none is."""
    counts = {name: sum(label == name for label in labels) for name in BINS}
    total = max(sum(counts.values()), 1)
    return {name: n / total for name, n in counts.items()}


def match_histogram(
    labels: Sequence[str],
    target: Mapping[str, float],
    *,
    count: int,
    rng: np.random.Generator,
) -> list[int]:
    """Numbers of problems whose bins have the target's shares.

    Args:
        labels: of all problems; those outside of BINS are never taken.
        target: bin to share, before they are scaled to sum to 1; a bin that is not
            named has share 0.
        count: problems to take; a bin with too few gives each of its problems equally
            often, to within one. 0 takes as many as can be had without repeating any.
        rng: draws within the bins.

    Returns:
        Ascending numbers, with repeats where a bin had too few.

    Raises:
        ValueError: an unknown bin, a share below 0 or all 0, or a share of a bin that
            is empty.
    """
    unknown = [name for name in target if name not in BINS]
    if unknown or min(target.values(), default=0) < 0 or not sum(target.values()):
        raise ValueError(
            f"target is {dict(target)}; it gives shares of {', '.join(BINS)}, none "
            "below 0 and not all 0"
        )
    shares = {name: x / sum(target.values()) for name, x in target.items() if x > 0}
    members = {
        name: [i for i, label in enumerate(labels) if label == name] for name in shares
    }
    empty = [name for name, numbers in members.items() if not numbers]
    if empty:
        raise ValueError(
            f"no problem is {' or '.join(empty)}, but the target wants "
            f"{', '.join(f'{shares[name]:.0%}' for name in empty)}: sample more "
            "problems, or change the target"
        )
    if count:
        edges = np.rint(np.cumsum([0.0, *shares.values()]) * count).astype(int)
        wanted = np.diff(edges).tolist()
    else:
        most = min(len(members[name]) / share for name, share in shares.items())
        wanted = [math.floor(most * share + 1e-9) for share in shares.values()]
    taken: list[int] = []
    for numbers, n in zip(members.values(), wanted, strict=True):
        whole, rest = divmod(n, len(numbers))
        taken += numbers * whole + rng.permutation(numbers)[:rest].tolist()
    return sorted(taken)


def distinct_ids(tasks: Sequence[Task]) -> list[Task]:
    """The tasks, the second of an id with "-again-1" after it, and so on."""
    seen: dict[str, int] = {}
    renamed = []
    for task in tasks:
        again = seen.get(task.id, 0)
        seen[task.id] = again + 1
        id = f"{task.id}-again-{again}" if again else task.id
        renamed.append(dataclasses.replace(task, id=id))
    return renamed


def label_probabilities(rate: float, *, k: int) -> dict[str, float]:
    """How likely k samples give each label to a problem of this true solve rate.

        P(label) = sum over c with label_of(c / k) = label of C(k, c) p^c (1-p)^(k-c)

    Args:
        rate: p, in [0, 1].
        k: independent samples, right or wrong; at least 1.
    """
    likely = dict.fromkeys(LABELS, 0.0)
    for c in range(k + 1):
        probability = math.comb(k, c) * rate**c * (1 - rate) ** (k - c)
        likely[label_of(c / k)] += probability
    return likely


@dataclasses.dataclass(frozen=True)
class Reliability:
    """What k samples a problem tell, over problems of many true rates.

    Attributes:
        right: share that gets the bin of its true rate.
        wrong: share that gets another bin.
        unsolved: share that is dropped since no sample was right.
        solved: share that is dropped since all were.
    """

    right: float
    wrong: float
    unsolved: float
    solved: float


def reliability(*, k: int, alpha: float, beta: float) -> Reliability:
    """How far bins from k samples can be trusted, exactly.

    The number of right samples is beta-binomial; together with a true rate in (l, h],

        P(c, l < p <= h) = C(k, c) B(alpha + c, beta + k - c) / B(alpha, beta)
                           (I_h(alpha + c, beta + k - c) - I_l(alpha + c, beta + k - c))

    with the regularised incomplete beta function I.

    Args:
        k: samples a problem, at least 1.
        alpha, beta: true rates are Beta(alpha, beta) over the problems; 1, 1 is
            uniform, both below 1 have most problems near 0 and 1.
    """
    edges = np.array([0.0, HARD, EASY, 1.0])
    shares = dict.fromkeys(("right", "wrong", "unsolved", "solved"), 0.0)
    for c in range(k + 1):
        a, b = alpha + c, beta + k - c
        weight = math.comb(k, c) * math.exp(betaln(a, b) - betaln(alpha, beta))
        in_bin = dict(zip(BINS, weight * np.diff(betainc(a, b, edges)), strict=True))
        label = label_of(c / k)
        if label in BINS:
            shares["right"] += float(in_bin[label])
            shares["wrong"] += float(weight - in_bin[label])
        else:
            shares[label] += float(weight)
    return Reliability(**shares)
