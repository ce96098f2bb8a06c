"""How training problems are drawn: orders over the numbers of a list's problems.

An order is made of (count, seed) and its options, and has
    next(n) -> the numbers of the next n problems;
    tell(drawn, scores), what came of them;
    metrics() -> {"data/...": value};
    state() -> plain JSON values, and restore(state).
It is a function of the seed and of what it was told, so that a resumed run, and each of
several processes, draws the same.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class Shuffled:
    """Every problem once an epoch, each epoch in an order of its own.

    A batch may reach into the next epoch.

    Args:
        count: problems, at least one.
        seed: of all the orders.
    """

    def __init__(self, count: int, seed: int):
        self._count = count
        self._seed = seed
        self._taken = 0

    def next(self, n: int) -> list[int]:
        """The next n numbers."""
        numbers: list[int] = []
        for position in range(self._taken, self._taken + n):
            epoch, index = divmod(position, self._count)
            if index == 0 or not numbers:
                order = np.random.default_rng([self._seed, epoch]).permutation(
                    self._count
                )
            numbers.append(int(order[index]))
        self._taken += n
        return numbers

    def tell(self, drawn: Sequence[int], scores: Sequence[Sequence[float]]) -> None:
        """Changes nothing."""

    def metrics(self) -> dict[str, float]:
        """None."""
        return {}

    def state(self) -> dict[str, Any]:
        """The position."""
        return {"taken": self._taken}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues exactly where the state was taken, across epochs too."""
        self._taken = int(state["taken"])


class ByDifficulty:
    """Problems that the policy solves sometimes, judged by the training samples alone.

    The solve rate of a problem is estimated from all its samples so far, older ones
    counting less, with a prior of one half:

        rate = (sum_s w_s score_s + prior / 2) / (sum_s w_s + prior)
        w_s = 2 ** -(problems drawn since s / (half_life * count))

    A problem is too hard below `too_hard`, too easy above `too_easy`, usable else. One
    that was never drawn has rate 1/2 and is usable; so is, in time, each of the others
    again, since what is known of it fades: that is how a problem comes back which the
    policy has grown up to or forgotten.

    Usable problems are drawn in passes, each at most once a pass, in random order. If
    a batch has more places than there are usable problems, the rates nearest to 1/2
    fill it.

    Args:
        count: problems, at least one.
        seed: of the random orders.
        half_life: of a sample's weight, in epochs: multiples of `count` problems drawn.
        prior: samples that the prior is worth. A group of G samples that all fail puts
            the rate at prior / 2 / (G + prior).
        too_hard: lowest usable rate, in [0, 1/2).
        too_easy: highest usable rate, in (1/2, 1].

    Raises:
        ValueError: an option is out of range.

    Source: ours. It answers the cost of the model-aware data of "Demystifying RL in
    Agentic Reasoning" (arXiv:2510.11701, section 3.3), which samples every problem 8
    times before training and never again.
    """

    def __init__(
        self,
        count: int,
        seed: int,
        *,
        half_life: float,
        prior: float,
        too_hard: float,
        too_easy: float,
    ):
        if half_life <= 0 or prior <= 0:
            raise ValueError(
                f"half_life is {half_life}, prior {prior}; both must be above 0"
            )
        if not 0 <= too_hard < 0.5 < too_easy <= 1:
            raise ValueError(
                f"too_hard is {too_hard}, too_easy {too_easy}; what is never tried has "
                "rate 1/2, so too_hard must be in [0, 1/2) and too_easy in (1/2, 1]"
            )
        self._seed = seed
        self._half_life = half_life * count
        self._prior = prior
        self._range = (too_hard, too_easy)
        self._taken = 0
        self._seen = np.zeros(count, bool)  # Drawn in this pass.
        self._solved = np.zeros(count)  # Sum of scores, at the time of _told.
        self._tried = np.zeros(count)
        self._told = np.zeros(count, int)  # Problems drawn by then.

    def rates(self) -> np.ndarray:
        """[count] float64 estimated solve rates by now."""
        weight = self._weight()
        known = weight * self._tried + self._prior
        return (weight * self._solved + self._prior / 2) / known

    def next(self, n: int) -> list[int]:
        """The next n numbers, distinct as far as there are so many."""
        rng = np.random.default_rng([self._seed, self._taken])
        rates, numbers = self.rates(), []
        while len(numbers) < n:
            numbers += self._chosen(rates, n - len(numbers), rng)
        self._taken += n
        return numbers

    def tell(self, drawn: Sequence[int], scores: Sequence[Sequence[float]]) -> None:
        """Takes in what was sampled.

        Args:
            drawn: numbers of problems.
            scores: of each one's samples, in [0, 1], faults left out; may be empty.
        """
        for i, group in zip(drawn, scores, strict=True):
            weight = self._weight(i)
            self._solved[i] = weight * self._solved[i] + sum(group)
            self._tried[i] = weight * self._tried[i] + len(group)
            self._told[i] = self._taken

    def metrics(self) -> dict[str, float]:
        """How the problems are spread over the pools, and how many were ever tried."""
        rates, (low, high) = self.rates(), self._range
        return {
            "data/too_hard_fraction": float(np.mean(rates < low)),
            "data/usable_fraction": float(np.mean((rates >= low) & (rates <= high))),
            "data/too_easy_fraction": float(np.mean(rates > high)),
            "data/tried_fraction": float(np.mean(self._tried > 0)),
        }

    def state(self) -> dict[str, Any]:
        """Position, pass and evidence; floats survive JSON exactly."""
        told = np.flatnonzero(self._tried)
        columns = (told, self._solved[told], self._tried[told], self._told[told])
        return {
            "taken": self._taken,
            "seen": np.flatnonzero(self._seen).tolist(),
            "evidence": [
                list(row) for row in zip(*(c.tolist() for c in columns), strict=True)
            ],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues exactly where the state was taken."""
        self._taken = int(state["taken"])
        for array in (self._seen, self._solved, self._tried, self._told):
            array[:] = 0
        self._seen[state["seen"]] = True
        for i, solved, tried, told in state["evidence"]:
            self._solved[i], self._tried[i], self._told[i] = solved, tried, told

    def _weight(self, i: Any = slice(None)) -> Any:
        """What is left of the evidence on problem i, or on each."""
        return 0.5 ** ((self._taken - self._told[i]) / self._half_life)

    def _chosen(
        self, rates: np.ndarray, most: int, rng: np.random.Generator
    ) -> list[int]:
        """Up to `most` distinct numbers: new to the pass, usable, nearest to usable."""
        low, high = self._range
        usable = (rates >= low) & (rates <= high)
        second = np.where(usable, self._seen, np.abs(rates - 0.5))
        order = np.lexsort((rng.random(len(rates)), second, ~usable))
        chosen = order[:most]
        again = chosen[usable[chosen] & self._seen[chosen]]
        if len(again):  # They begin a new pass.
            self._seen[:] = False
            self._seen[again] = True
        else:
            self._seen[chosen] = True
        return chosen.tolist()


DRAWS = {"shuffled": Shuffled, "by_difficulty": ByDifficulty}
