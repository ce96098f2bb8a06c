"""From trajectories to packed rows: the bridge between the two halves."""

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from agentic_jax.batch import Batch, Outcome
from agentic_jax.trajectory import Sample, Trajectory


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


def pack_rows(
    trajectories: Sequence[Trajectory],
    *,
    prompt_ids: Sequence[int],
    length: int,
    rows_multiple: int,
) -> tuple[Batch, list[int], list[int]]:
    """Packed rows, and for each trajectory its row and its segment id.

    First-fit decreasing over a bounded number of open rows, so the cost stays linear;
    ties keep the given order, so equal inputs give equal rows.
    """
    lengths = [len(trajectory.token_ids) for trajectory in trajectories]
    if lengths and max(lengths) > length:
        raise ValueError(
            f"a trajectory has {max(lengths)} tokens, a row holds {length}: raise "
            "update.row_length or lower the prompt and response limits"
        )
    row, segment, offset, num_rows = _place(lengths, length)
    rows = -(-max(num_rows, 1) // rows_multiple) * rows_multiple
    arrays = empty_rows(rows, length)
    for i, trajectory in enumerate(trajectories):
        span = (row[i], slice(offset[i], offset[i] + lengths[i]))
        arrays["tokens"][span] = trajectory.token_ids
        arrays["positions"][span] = np.arange(lengths[i])
        arrays["segment_ids"][span] = segment[i]
        arrays["prompt_ids"][span] = prompt_ids[i]
        _fill_turns(arrays, trajectory, row[i], offset[i])
    return Batch(**arrays), row, segment


def empty_rows(rows: int, length: int) -> dict[str, np.ndarray]:
    """The fields of an all-padding Batch [rows, length]."""
    kinds = {"mask": bool, "behavior_logprobs": np.float32}
    return {
        f.name: np.zeros((rows, length), kinds.get(f.name, np.int32))
        for f in fields(Batch)
    }


def pad_rows(batch: Batch, rows: int) -> Batch:
    """The batch with padding rows appended up to `rows`."""
    missing = rows - batch.tokens.shape[0]
    return Batch(
        **{
            f.name: np.pad(getattr(batch, f.name), ((0, missing), (0, 0)))
            for f in fields(Batch)
        }
    )


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


def _fill_turns(
    arrays: dict[str, np.ndarray], trajectory: Trajectory, row: int, offset: int
) -> None:
    """Writes turn ids, mask and engine log-probabilities of one trajectory."""
    start = offset + len(trajectory.prompt_token_ids)
    for k, turn in enumerate(trajectory.turns, start=1):
        sampled = slice(start, start + len(turn.token_ids))
        end = sampled.stop + len(turn.result_token_ids)
        arrays["turn_ids"][row, start:end] = k
        arrays["mask"][row, sampled] = True
        arrays["behavior_logprobs"][row, sampled] = turn.logprobs
        start = end
