"""From trajectories to packed rows: the bridge between the two halves."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from agentic_jax.batch import Batch, Outcome
from agentic_jax.trajectory import Sample, Trajectory

FIELDS = {
    "tokens": np.int32,
    "positions": np.int32,
    "segment_ids": np.int32,
    "prompt_ids": np.int32,
    "turn_ids": np.int32,
    "mask": bool,
    "behavior_logprobs": np.float32,
    "turn_calls": np.int32,
    "call_mask": bool,
    "shared_mask": bool,
}


def pack(
    groups: Sequence[Sequence[Sample]], *, length: int, rows_multiple: int
) -> tuple[Batch, Outcome]:
    """Packed rows of the valid samples of all groups, and where each one lies.

    Args:
        groups: P groups of at most G samples, one group per prompt; a smaller group
            is filled with invalid samples.
        length: tokens per row; no trajectory may be longer.
        rows_multiple: the number of rows is a multiple of this, padding rows added.

    Returns:
        NumPy-backed Batch [B, length] and Outcome [P, G].

    Raises:
        ValueError: a trajectory is longer than a row, or there is no group.
    """
    if not groups or not any(groups):
        raise ValueError("there is no sample to pack")
    group_size = max(len(group) for group in groups)
    shape = (len(groups), group_size)
    outcome = {
        "reward": np.zeros(shape, np.float32),
        "score": np.zeros(shape, np.float32),
        "num_calls": np.zeros(shape, np.int32),
        "valid": np.zeros(shape, bool),
        "row": np.zeros(shape, np.int32),
        "segment": np.zeros(shape, np.int32),
    }
    packed, places = [], []
    for p, group in enumerate(groups):
        for g, sample in enumerate(group):
            if sample.valid:
                packed.append((p + 1, sample.trajectory))
                places.append((p, g))
            outcome["reward"][p, g] = sample.reward if sample.valid else 0.0
            outcome["score"][p, g] = sample.trajectory.score or 0.0
            outcome["num_calls"][p, g] = len(sample.trajectory.calls)
            outcome["valid"][p, g] = sample.valid
    batch, row, segment = pack_rows(
        [trajectory for _, trajectory in packed],
        prompt_ids=[prompt_id for prompt_id, _ in packed],
        length=length,
        rows_multiple=rows_multiple,
    )
    for place, r, s in zip(places, row, segment, strict=True):
        outcome["row"][place], outcome["segment"][place] = r, s
    return batch, Outcome(**outcome)


@dataclass(frozen=True)
class Step:
    """The packed samples of one training step, cut into optimizer updates.

    Attributes:
        batch: [U * R, length] NumPy-backed; rows u R to (u + 1) R belong to update u.
        outcome: [P, G], in the order of `groups`.
        groups: the samples in the order that `outcome` has.
        num_updates: U.
    """

    batch: Batch
    outcome: Outcome
    groups: list[Sequence[Sample]]
    num_updates: int


def pack_step(
    groups: Sequence[Sequence[Sample]],
    *,
    num_updates: int,
    length: int,
    rows_multiple: int,
    rng: np.random.Generator,
) -> Step:
    """Shuffles the groups into `num_updates` equal parts and packs each by itself.

    Args:
        groups: one per prompt, never split over updates.
        num_updates: optimizer updates made of them; at most the number of groups.
        length, rows_multiple: as in pack. R is also rounded up to one of few values,
            so that few shapes are ever compiled.
        rng: orders the groups.
    """
    order = rng.permutation(len(groups))
    parts = [
        [groups[i] for i in part]
        for part in np.array_split(order, min(num_updates, len(groups)))
    ]
    packed = [pack(p, length=length, rows_multiple=rows_multiple) for p in parts]
    most = max(batch.tokens.shape[0] for batch, _ in packed)
    rows = _bucket(most // rows_multiple) * rows_multiple
    group_size = max(outcome.valid.shape[1] for _, outcome in packed)
    batches, outcomes = [], []
    for u, (batch, outcome) in enumerate(packed):
        outcome.row[outcome.valid] += u * rows
        batches.append(pad_rows(batch, rows))
        outcomes.append(_pad_samples(outcome, group_size))
    return Step(
        batch=map_rows(lambda *parts: np.concatenate(parts), *batches),
        outcome=jax.tree.map(lambda *parts: np.concatenate(parts), *outcomes),
        groups=[group for part in parts for group in part],
        num_updates=len(parts),
    )


def _bucket(n: int) -> int:
    """The smallest of 1, 2, 3, 4, 6, 8, 12, 16, 24, ... that is at least n."""
    size = 1 << (n - 1).bit_length()
    return 3 * size // 4 if size >= 4 and n <= 3 * size // 4 else size


def _pad_samples(outcome: Outcome, group_size: int) -> Outcome:
    missing = group_size - outcome.valid.shape[1]
    if not missing:
        return outcome
    return jax.tree.map(lambda x: np.pad(x, ((0, 0), (0, missing))), outcome)


def pack_rows(
    trajectories: Sequence[Trajectory],
    *,
    prompt_ids: Sequence[int],
    length: int,
    rows_multiple: int,
) -> tuple[Batch, list[int], list[int]]:
    """Packed rows, and for each trajectory its row and its segment id.

    First-fit decreasing over a bounded number of open rows, so the cost stays linear;
    ties keep the given order, so equal inputs give equal rows. Of turns that a branch
    shares with an earlier trajectory of its prompt, the earlier one's are trained: if
    selection has dropped that one, the first branch that is left is.
    """
    lengths = [len(trajectory.token_ids) for trajectory in trajectories]
    if lengths and max(lengths) > length:
        raise ValueError(
            f"a trajectory has {max(lengths)} tokens, a row holds {length}: raise "
            "batch.row_length or lower the prompt and response limits"
        )
    row, segment, offset, num_rows = _place(lengths, length)
    rows = -(-max(num_rows, 1) // rows_multiple) * rows_multiple
    arrays = {name: np.zeros((rows, length), kind) for name, kind in FIELDS.items()}
    earlier: dict[int, list[Trajectory]] = defaultdict(list)  # By prompt id.
    for i, trajectory in enumerate(trajectories):
        span = (row[i], slice(offset[i], offset[i] + lengths[i]))
        arrays["tokens"][span] = trajectory.token_ids
        arrays["positions"][span] = np.arange(lengths[i])
        arrays["segment_ids"][span] = segment[i]
        arrays["prompt_ids"][span] = prompt_ids[i]
        before = earlier[prompt_ids[i]]
        shared = max((shared_turns(trajectory, other) for other in before), default=0)
        before.append(trajectory)
        _fill_turns(arrays, trajectory, row[i], offset[i], shared)
    return Batch(**arrays), row, segment


def map_rows(function: Callable[..., np.ndarray], *batches: Batch) -> Batch:
    """A Batch of function(field of each batch), field by field."""
    return Batch(
        **{name: function(*(getattr(b, name) for b in batches)) for name in FIELDS}
    )


def pad_rows(batch: Batch, rows: int) -> Batch:
    """The batch with padding rows appended up to `rows`."""
    missing = rows - batch.tokens.shape[0]
    if not missing:
        return batch
    return map_rows(lambda x: np.pad(x, ((0, missing), (0, 0))), batch)


def _place(
    lengths: Sequence[int], length: int, open_rows: int = 64
) -> tuple[list[int], list[int], list[int], int]:
    """Row, segment id and offset of each trajectory, and the number of rows."""
    row, segment, offset = ([0] * len(lengths) for _ in range(3))
    used: list[int] = []  # Tokens in each row.
    count: list[int] = []  # Segments in each row.
    candidates: list[int] = []  # Rows that may still take something, oldest first.
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        place = next((r for r in candidates if used[r] + lengths[i] <= length), None)
        if place is None:
            place = len(used)
            used.append(0)
            count.append(0)
            candidates = [*candidates, place][-open_rows:]
        row[i], offset[i] = place, used[place]
        used[place] += lengths[i]
        count[place] += 1
        segment[i] = count[place]
    return row, segment, offset, len(used)


def shared_turns(trajectory: Trajectory, other: Trajectory) -> int:
    """How many of its shared leading turns another trajectory has too."""
    pairs = zip(trajectory.turns[: trajectory.shared_turns], other.turns, strict=False)
    same = (
        np.array_equal(a.token_ids, b.token_ids)
        and np.array_equal(a.result_token_ids, b.result_token_ids)
        for a, b in pairs
    )
    return sum(itertools.takewhile(bool, same))


def _fill_turns(
    arrays: dict[str, np.ndarray],
    trajectory: Trajectory,
    row: int,
    offset: int,
    shared: int,
) -> None:
    """Writes what turns say of their tokens, for one trajectory with `shared` turns."""
    start = offset + len(trajectory.prompt_token_ids)
    for k, turn in enumerate(trajectory.turns, start=1):
        sampled = slice(start, start + len(turn.token_ids))
        end = sampled.stop + len(turn.result_token_ids)
        arrays["turn_ids"][row, start:end] = k
        arrays["turn_calls"][row, start:end] = len(turn.calls)
        arrays["mask"][row, sampled] = True
        arrays["behavior_logprobs"][row, sampled] = turn.logprobs
        arrays["shared_mask"][row, sampled] = k <= shared
        for first, last in turn.call_spans:
            arrays["call_mask"][row, start + first : start + last] = True
        start = end
