"""Selection: which samples of a group are trained on. Pure, NumPy only.

All functions of SELECTIONS take (group, *, rng, ...) and return the samples kept, in
their order; an empty list drops the group.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from agentic_jax.trajectory import CallStatus, Sample

Mode = Literal["paper", "code"]


def keep_all(group: Sequence[Sample], *, rng: np.random.Generator) -> list[Sample]:
    """Every sample, faults too: they are marked invalid and get no advantage."""
    return list(group)


def drop_uniform(group: Sequence[Sample], *, rng: np.random.Generator) -> list[Sample]:
    """The group, or nothing if its valid samples are all right or all wrong alike.

    Decides on the raw score: shaping makes rewards differ where correctness does not.

    Source: dynamic sampling, DAPO (arXiv:2503.14476), section 3.2; rStar2
    (arXiv:2508.20722) drops such groups before it resamples.
    """
    return [] if is_uniform([_score(s) for s in group if s.valid]) else list(group)


def resample_on_correct(
    group: Sequence[Sample],
    *,
    rng: np.random.Generator,
    keep: int,
    mode: Mode,
    min_positive: int = 2,
    min_negative: int = 2,
    answer_tag: str = "answer",
) -> list[Sample]:
    """GRPO-RoC: keeps clean right answers and a plain draw of the wrong ones.

    Args:
        group: samples of one prompt, with their text; invalid ones are never kept.
        rng: decides the draws of mode "paper".
        keep: how many to keep, at least 1; half of the group in the paper.
        mode: see resample_indices.
        min_positive: see resample_indices.
        min_negative: see resample_indices.
        answer_tag: name of the tag that a response shall use once.

    Returns:
        Exactly `keep` samples, or none: for a group of equal scores, or with fewer
        than `keep` valid samples.

    Raises:
        ValueError: a sample has no text, or an option is out of range.

    Source: rStar2-Agent (arXiv:2508.20722), section 3.3.
    """
    valid = [sample for sample in group if sample.valid]
    if is_uniform([_score(s) for s in valid]):
        return []
    penalties = [_penalty(s, mode=mode, answer_tag=answer_tag) for s in valid]
    chosen = resample_indices(
        [sample.reward for sample in valid],
        penalties,
        keep=keep,
        mode=mode,
        rng=rng,
        min_positive=min_positive,
        min_negative=min_negative,
    )
    return [valid[i] for i in chosen]


def resample_indices(
    rewards: Sequence[float],
    penalties: Sequence[float],
    *,
    keep: int,
    mode: Mode,
    rng: np.random.Generator,
    min_positive: int = 2,
    min_negative: int = 2,
) -> list[int]:
    """Which of m samples to keep, in order; [] if there are fewer than `keep`.

    Positives (reward > 0) and negatives keep their shares of the group, rounded half
    to even, but each at least its minimum where there are that many.
        mode "paper": positives are drawn without replacement with probability
            proportional to 1 / (penalty + 1e-6), negatives uniformly.
        mode "code": positives with the smallest penalties, ties by order; the first
            negatives.

    Args:
        rewards: [m].
        penalties: [m] p_err + p_format, at least 0.
        keep: how many to keep, at least 1.
        mode: "paper" or "code".
        rng: used by mode "paper" only.
        min_positive: fewest positives to keep.
        min_negative: fewest negatives to keep.

    Raises:
        ValueError: unknown mode, keep below 1, or lengths that differ.

    Source: rStar2-Agent (arXiv:2508.20722), section 3.3; the constant 1e-6 is ours.
    """
    if mode not in ("paper", "code"):
        raise ValueError(f"mode is {mode!r}; it is 'paper' or 'code'")
    if keep < 1 or len(rewards) != len(penalties):
        raise ValueError(
            f"keep is {keep}, {len(rewards)} rewards, {len(penalties)} penalties; need "
            "keep >= 1 and one penalty per reward"
        )
    if len(rewards) < keep:
        return []
    positives = [i for i, reward in enumerate(rewards) if reward > 0]
    negatives = [i for i, reward in enumerate(rewards) if not reward > 0]
    num_positive = positives_to_keep(
        len(positives),
        len(negatives),
        keep=keep,
        min_positive=min_positive,
        min_negative=min_negative,
    )
    own_penalties = np.array([penalties[i] for i in positives], float)
    if mode == "paper":
        # Gumbel top-k: draws without replacement, proportional to the weights.
        logits = np.log(draw_probabilities(own_penalties)) + rng.gumbel(
            size=len(positives)
        )
        best = np.argsort(-logits, kind="stable")
        negatives = list(rng.permutation(negatives)) if negatives else []
    else:
        best = np.argsort(own_penalties, kind="stable")
    chosen = [positives[i] for i in best[:num_positive]]
    return sorted(int(i) for i in [*chosen, *negatives[: keep - num_positive]])


def positives_to_keep(
    num_positive: int,
    num_negative: int,
    *,
    keep: int,
    min_positive: int,
    min_negative: int,
) -> int:
    """How many of `keep` places go to positives: their share, within the minima.

    The rest goes to negatives, so the places always add up to `keep`, for odd numbers
    too. Where both minima do not fit, each side gets half at most.

    Args:
        num_positive: positives in the group.
        num_negative: negatives in the group; together at least keep.
        keep: places, at least 1.
        min_positive: fewest positives to keep, where there are that many.
        min_negative: fewest negatives to keep, where there are that many.
    """
    share = round(num_positive * keep / (num_positive + num_negative))
    fewest = min(min_positive, num_positive, (keep + 1) // 2)
    most = keep - min(min_negative, num_negative, keep // 2)
    share = min(max(share, fewest), most)
    return min(max(share, keep - num_negative), num_positive)


def draw_probabilities(penalties: np.ndarray) -> np.ndarray:
    """Probability that each positive is drawn first: 1 / (penalty + 1e-6), normalised.

    Args:
        penalties: [n] at least 0.

    Returns:
        [n] float64 of sum 1; empty for no positives.
    """
    weights = 1.0 / (np.asarray(penalties, float) + 1e-6)
    return weights / weights.sum()


def error_ratio(statuses: Sequence[CallStatus]) -> float:
    """Share of a sample's tool calls that failed; 0.5 if it made none.

    Every status but "ok" is a failure of the model's. "busy" is our fault: the call
    counts neither way.

    Source: p_err of rStar2-Agent (arXiv:2508.20722), on statuses in place of words.
    """
    counted = [status for status in statuses if status != "busy"]
    if not counted:
        return 0.5
    return sum(status != "ok" for status in counted) / len(counted)


def format_penalty(
    num_opened: int, num_closed: int, num_rounds: int, *, mode: Mode
) -> float:
    """Penalty for no answer tag or for several: min(1, (tags - 1) / turns).

    Args:
        num_opened: opening answer tags in the policy's text.
        num_closed: closing ones.
        num_rounds: turns that called a tool.
        mode: "paper": complete tags count, turns are num_rounds + 1. "code": turns are
            num_rounds, and a penalty of 1 for an answer without tool calls and for
            tags that do not pair.

    Returns:
        In [0, 1]; 1 without a tag.

    Source: p_format of rStar2-Agent (arXiv:2508.20722), and its released code.
    """
    tags = min(num_opened, num_closed)
    if tags == 0:
        return 1.0
    if mode == "code" and (num_rounds == 0 or num_opened != num_closed):
        return 1.0
    turns = num_rounds if mode == "code" else num_rounds + 1
    return min(1.0, (tags - 1) / turns)


def is_uniform(scores: Sequence[float]) -> bool:
    """Whether no two scores differ, none and one included."""
    return len(set(scores)) < 2


SELECTIONS = {
    "all": keep_all,
    "drop_uniform": drop_uniform,
    "resample_on_correct": resample_on_correct,
}


def _score(sample: Sample) -> float:
    score = sample.trajectory.score
    if score is None:
        raise ValueError(
            f"a sample of task {sample.trajectory.task.id} has no score; verify first"
        )
    return score


def _penalty(sample: Sample, *, mode: Mode, answer_tag: str) -> float:
    """p_err + p_format of one sample."""
    if sample.text is None:
        raise ValueError(
            "resample_on_correct counts answer tags: give each Sample its text"
        )
    trajectory = sample.trajectory
    num_rounds = sum(bool(turn.calls) for turn in trajectory.turns)
    return error_ratio([c.result.status for c in trajectory.calls]) + format_penalty(
        sample.text.count(f"<{answer_tag}>"),
        sample.text.count(f"</{answer_tag}>"),
        num_rounds,
        mode=mode,
    )
