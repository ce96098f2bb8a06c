"""The step that the conformance suite lays out in many ways."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from agentic_jax.batch import Batch, Outcome, Scores

ROWS, LENGTH = 8, 24
Placement = Sequence[Sequence[int]]
PACKED = ((0, 1), (2, 3), (4, 5), (6, 7))
UNPACKED = tuple((i,) for i in range(8))
REORDERED = ((), (6, 7), (0, 1), (), (4, 5), (2, 3))


@dataclass(frozen=True)
class Step:
    """Everything that one optimizer step's loss is made of, [B, T] or [P, G]."""

    batch: Batch
    outcome: Outcome
    scores: Scores
    logprobs: jax.Array
    advantage_noise: jax.Array


jax.tree_util.register_dataclass(Step)


def make_step(placement: Placement, *, length: int = LENGTH) -> Step:
    """The same nine samples of three prompts (the last is a fault), laid out in rows.

    Args:
        placement: for each row the samples that lie in it, in order; rows that are
            not named are padding.
        length: tokens per row.
    """
    rng = np.random.default_rng(0)
    shape = (ROWS, length)
    fields = {
        name: np.zeros(shape, np.int32)
        for name in (
            "tokens",
            "positions",
            "segment_ids",
            "prompt_ids",
            "turn_ids",
            "turn_calls",
        )
    }
    fields |= {name: np.zeros(shape, bool) for name in ("mask", "call_mask")}
    numbers = ("behavior_logprobs", "logprobs", "old", "ref", "entropy")
    values = {name: np.zeros(shape, np.float32) for name in numbers}
    places = {i: (r, s) for r, row in enumerate(placement) for s, i in enumerate(row)}
    row, segment = np.zeros(9, np.int32), np.zeros(9, np.int32)
    offsets = np.zeros(ROWS, int)
    for i in range(8):
        n, sample = _sample(i, rng)
        r, s = places[i]
        where = (r, slice(offsets[r], offsets[r] + n))
        offsets[r] += n
        row[i], segment[i] = r, s + 1
        fields["segment_ids"][where] = s + 1
        fields["prompt_ids"][where] = i // 3 + 1
        fields["positions"][where] = np.arange(n)
        for name, value in sample.items():
            (fields if name in fields else values)[name][where] = value
    grid = {"row": row.reshape(3, 3), "segment": segment.reshape(3, 3)}
    rewards = np.array([[1, 0, 0], [0.5, 1, 0], [1, 0, 9]], np.float32)
    outcome = Outcome(
        reward=rewards,
        score=rewards,
        num_calls=np.ones((3, 3), np.int32),
        valid=np.arange(9).reshape(3, 3) < 8,
        components=np.stack([rewards, rewards[::-1]]),
        **grid,
    )
    behavior = values.pop("behavior_logprobs")
    return Step(
        batch=Batch(**fields, behavior_logprobs=behavior),
        outcome=outcome,
        scores=Scores(values["old"], values["entropy"], values["ref"]),
        logprobs=values["logprobs"],
        advantage_noise=np.zeros(shape, np.float32),
    )


def _sample(i: int, rng: np.random.Generator) -> tuple[int, dict[str, np.ndarray]]:
    """Length and fields of one sample: prompt, calling turn, tool result, answer."""
    called, answered = 2 + i % 3, 2 + i % 4
    n = 2 + called + 1 + answered
    turn = np.repeat([0, 1, 2], [2, called + 1, answered])
    sampled = turn > 0
    sampled[2 + called] = False
    logprobs = -rng.exponential(1.0, n)
    near = {k: logprobs + rng.normal(0, 0.3, n) for k in ("old", "ref")}
    near["behavior_logprobs"] = near["old"] + rng.normal(0, 0.02, n)
    fields = {k: np.where(sampled, v, 0.0) for k, v in near.items()}
    return n, fields | {
        "tokens": rng.integers(1, 50, n),
        "turn_ids": turn,
        "turn_calls": (turn == 1).astype(np.int32),
        "mask": sampled,
        "call_mask": np.arange(n) == 1 + called,
        "logprobs": np.where(sampled, logprobs, 0.0),
        "entropy": rng.exponential(1.0, n),
    }


def by_sample(grad: jax.Array, placement: Placement) -> list[np.ndarray]:
    """The gradient of each sample's tokens, in the order of samples."""
    lengths = [2 + (2 + i % 3) + 1 + (2 + i % 4) for i in range(8)]
    parts = {}
    for r, row in enumerate(placement):
        start = 0
        for i in row:
            parts[i] = np.asarray(grad[r, start : start + lengths[i]], np.float32)
            start += lengths[i]
    return [parts[i] for i in range(8)]


def spread_over(step: Step, devices: int) -> Step:
    """The step with its rows sharded over data and fsdp of the first `devices`."""
    if jax.device_count() < devices:
        raise ValueError(
            f"{devices} devices are needed, {jax.device_count()} are there: set "
            "XLA_FLAGS=--xla_force_host_platform_device_count=8"
        )
    shape = (max(devices // 2, 1), min(devices, 2))
    mesh = jax.make_mesh(
        shape,
        ("data", "fsdp"),
        axis_types=(AxisType.Auto,) * 2,
        devices=jax.devices()[:devices],
    )
    rows = NamedSharding(mesh, PartitionSpec(("data", "fsdp")))
    everywhere = NamedSharding(mesh, PartitionSpec())
    outcome = jax.device_put(step.outcome, everywhere)
    rest = replace(step, outcome=None)
    return replace(jax.device_put(rest, rows), outcome=outcome)


def poisoned(step: Step) -> Step:
    """NaN, inf and -inf in every float that no sampled token owns."""
    mask = step.batch.mask
    poison = np.resize(np.array([np.nan, np.inf, -np.inf], np.float32), mask.shape)

    def spoil(x: np.ndarray) -> np.ndarray:
        return np.where(mask, x, poison)

    return replace(
        step,
        batch=replace(
            step.batch, behavior_logprobs=spoil(step.batch.behavior_logprobs)
        ),
        scores=jax.tree.map(spoil, step.scores),
        logprobs=spoil(step.logprobs),
        advantage_noise=spoil(step.advantage_noise),
    )


def extreme(step: Step) -> Step:
    """Ratios of exp(+-10,000) among the sampled tokens."""
    signs = np.resize(np.array([1e4, -1e4, 0.0], np.float32), step.logprobs.shape)
    shifted = np.where(step.batch.mask, step.logprobs + signs, 0.0)
    return replace(step, logprobs=shifted.astype(np.float32))
