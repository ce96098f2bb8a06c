"""One training step on the device: score, credit, and the optimizer updates.

These functions run over micro-batches of one fixed shape, so that however long the
trajectories of a step are, nothing is compiled again.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from agentic_jax.batch import Batch, Outcome, Scores, Targets
from agentic_jax.losses.policy import mean_metrics
from agentic_jax.packing import Step
from agentic_jax.training.state import TrainState

NOTHING: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class Device:
    """The jitted functions of a run and the micro-batch that they take.

    Attributes:
        score: (params, Batch) -> (logprobs, entropy).
        zeros: (params) -> gradient sums to start from.
        grad: (params, grads, Batch, Targets, scheduled) -> (grads, metrics that add).
        apply: (TrainState, grads) -> (TrainState, gradient norm).
        targets: (Outcome, Scores, Batch, *, num_updates) -> Targets; None for SFT.
        put: NumPy pytree of [rows, T] -> sharded device arrays; scalars replicated.
        rows: of one micro-batch.
        weights: (params) -> those of the model, adapters merged, whole on this
            process: for the engine and for files. All processes must call it.
        rates: (lengths of the trajectories, *, seconds) -> time/ metrics of an update.
    """

    score: Callable
    zeros: Callable
    grad: Callable
    apply: Callable
    put: Callable[[Any], Any]
    rows: int
    weights: Callable[[Any], Any]
    rates: Callable[..., dict[str, float]]
    targets: Callable | None = None


def score_step(
    device: Device, params: Any, batch: Batch, *, ref_params: Any = None
) -> Scores:
    """NumPy Scores [B, T] of a whole step by the policy that is about to be improved.

    Args:
        device: the jitted functions.
        params: of the policy.
        batch: [B, T] NumPy arrays, B a multiple of device.rows.
        ref_params: of the frozen reference; None leaves ref_logprobs None.
    """
    shape = batch.tokens.shape
    logprobs, entropy = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    ref_logprobs = None if ref_params is None else np.zeros(shape, np.float32)
    for part in _micro_batches(batch.mask, device.rows):
        rows = device.put(_take(batch, part))
        with jax.transfer_guard("disallow"):  # Finds accidental copies.
            scores = device.score(params, rows)
            ref_scores = ref_params and device.score(ref_params, rows)
        logprobs[part], entropy[part] = jax.device_get(scores)
        if ref_params is not None:
            ref_logprobs[part] = jax.device_get(ref_scores[0])
    return Scores(logprobs, entropy, ref_logprobs)


def make_targets_fn(
    credit: Callable, aggregation: Callable, correction: Callable
) -> Callable[..., Targets]:
    """Jitted (Outcome, Scores, Batch, *, num_updates) -> Targets of a whole step.

    Tokens of batch.shared_mask have credit, but no weight and no place in the loss.

    Args:
        credit: (Outcome, Scores, Batch) -> advantages [B, T].
        aggregation: (mask, segment_ids, prompt_ids) -> weights over one update's rows.
        correction: (old_logprobs, behavior_logprobs, mask, segment_ids, advantages) ->
            factors of the weights.
    """

    def targets(
        outcome: Outcome, scores: Scores, batch: Batch, *, num_updates: int
    ) -> Targets:
        def per_update(x: jax.Array) -> jax.Array:
            return x.reshape(num_updates, -1, x.shape[-1])

        mask = batch.mask
        if batch.shared_mask is not None:
            mask = mask & ~batch.shared_mask
        ids = (mask, batch.segment_ids, batch.prompt_ids)
        weights = jax.vmap(aggregation)(*map(per_update, ids))
        advantages = credit(outcome, scores, batch)
        correct = correction(
            scores.logprobs,
            batch.behavior_logprobs,
            batch.mask,
            batch.segment_ids,
            advantages,
        )
        return Targets(
            mask=mask,
            segment_ids=batch.segment_ids,
            old_logprobs=scores.logprobs,
            advantages=advantages,
            weights=weights.reshape(batch.mask.shape) * correct,
            ref_logprobs=scores.ref_logprobs,
        )

    return jax.jit(targets, static_argnames="num_updates")


def step_targets(device: Device, step: Step, scores: Scores) -> Targets:
    """NumPy Targets [U * R, T]: credit over the step, weights over each update."""
    inputs = jax.device_put((step.outcome, scores, step.batch))
    return jax.device_get(device.targets(*inputs, num_updates=step.num_updates))


def update_step(
    device: Device,
    state: TrainState,
    step: Step,
    targets: Targets,
    scheduled: Mapping[str, float] = NOTHING,
) -> tuple[TrainState, dict[str, float]]:
    """The state after the step's optimizer updates, and their mean metrics.

    An update in which no token has weight is skipped and counted.

    Args:
        device: the jitted functions.
        state: before the step.
        step: packed samples.
        targets: [U * R, T] NumPy arrays of the step.
        scheduled: options of the surrogate that move, by name.

    Raises:
        FloatingPointError: a loss or gradient is NaN or infinite; the state before
            this step is in the newest checkpoint.
    """
    rows = step.batch.tokens.shape[0] // step.num_updates
    sums: dict[str, float] = {}
    skipped = 0
    for u in range(step.num_updates):
        mine = slice(u * rows, (u + 1) * rows)
        state, metrics = update(
            device, state, _take(step.batch, mine), _take(targets, mine), scheduled
        )
        skipped += metrics is None
        for name, value in (metrics or {}).items():
            sums[name] = sums.get(name, 0.0) + value
    made = step.num_updates - skipped
    return state, {
        "policy/updates": float(made),
        "policy/skipped_updates": float(skipped),
        **{name: value / max(made, 1) for name, value in sums.items()},
    }


def update(
    device: Device,
    state: TrainState,
    batch: Batch,
    targets: Targets,
    scheduled: Mapping[str, float] = NOTHING,
) -> tuple[TrainState, dict[str, float] | None]:
    """The state after one optimizer update over all rows; metrics None if skipped."""
    parts = list(_micro_batches(np.asarray(targets.weights) != 0, device.rows))
    if not parts:
        return state, None
    grads, totals = device.zeros(state.params), None
    options = device.put({k: np.float32(x) for k, x in scheduled.items()})
    for part in parts:
        rows = device.put((_take(batch, part), _take(targets, part)))
        with jax.transfer_guard("disallow"):
            grads, metrics = device.grad(state.params, grads, *rows, options)
        totals = metrics if totals is None else jax.tree.map(jnp.add, totals, metrics)
    totals = jax.device_get(mean_metrics(totals))
    totals = {name: float(x) for name, x in totals.items()}
    bad = {name: x for name, x in totals.items() if not np.isfinite(x)}
    if bad:
        raise FloatingPointError(
            f"not finite: {bad}; nothing was applied. Look at the step's trajectories "
            "and metrics, lower the learning rate, then run the same command: it "
            "resumes from the newest checkpoint"
        )
    state, norm = device.apply(state, grads)
    norm = float(jax.device_get(norm))
    if not np.isfinite(norm):
        raise FloatingPointError(
            f"the gradient norm is {norm} while the loss is finite; lower the learning "
            "rate, then run the same command: it resumes from the newest checkpoint"
        )
    return state, {**totals, "policy/grad_norm": norm}


def _micro_batches(wanted: np.ndarray, rows: int) -> Iterator[slice]:
    """Slices of `rows` rows in which anything is wanted; the rest is padding."""
    for start in range(0, wanted.shape[0], rows):
        if wanted[start : start + rows].any():
            yield slice(start, start + rows)


def _take(tree: Any, part: slice) -> Any:
    """The rows of every array of a pytree dataclass; None stays None."""
    return jax.tree.map(lambda x: x[part], tree)
