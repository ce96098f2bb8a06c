"""The contract of docs/losses.md, property by property."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from agentic_jax import losses
from agentic_jax.batch import Targets
from agentic_jax.config import bind
from agentic_jax.conformance.host import HOST_CHECKS
from agentic_jax.conformance.step import (
    LENGTH,
    PACKED,
    REORDERED,
    ROWS,
    UNPACKED,
    Placement,
    Step,
    by_sample,
    extreme,
    make_step,
    poisoned,
    spread_over,
)
from agentic_jax.losses.policy import policy_loss
from agentic_jax.rewards.shaping import REWARDS
from agentic_jax.rollout.select import SELECTIONS

SLOTS = {
    "surrogate": losses.SURROGATES,
    "log_ratio": losses.LOG_RATIOS,
    "aggregation": losses.AGGREGATIONS,
    "kl": losses.KLS,
    "correction": losses.CORRECTIONS,
    "credit": losses.CREDITS,
    "select": SELECTIONS,
    "reward": REWARDS,
}
# What fills the slots that are not under test.
BASELINE = {
    "surrogate": {"name": "clipped", "eps_low": 0.2, "eps_high": 0.28},
    "log_ratio": {"name": "token"},
    "aggregation": {"name": "token_mean"},
    "kl": {"name": "k3"},
    "correction": {"name": "none"},
    "credit": {"name": "group_normalized", "eps": 1e-6},
}
# Values for options that have no default, where the command gives none.
OPTIONS = {
    "alpha": 0.5,
    "bonus": 0.01,
    "buffer_tokens": 8,
    "cap": 3.0,
    "delta": 0.05,
    "eps": 1e-6,
    "eps_high": 0.28,
    "eps_low": 0.2,
    "estimator": "k1",
    "final": "final_traj",
    "high": 2.0,
    "keep": 4,
    "level": "mean",
    "low": 0.5,
    "markup": "in",
    "max_calls": 2,
    "max_difference": 0.3,
    "max_tokens": 16,
    "mode": "paper",
    "penalty": 0.5,
    "tau_neg": 1.05,
    "tau_pos": 1.0,
    "terms": {"right": {"name": "outcome"}},
    "weight": -0.05,
    "weights": (1.0, 0.5),
}


def check(
    slot: str, name: str, options: Mapping[str, Any], *, meshes: int = 4
) -> Iterator[tuple[str, str]]:
    """Tries each property of the contract on one function.

    Args:
        slot: a key of SLOTS.
        name: of a shipped function, or "module:function".
        options: of the function; OPTIONS fills in what has no default.
        meshes: device splits to try: 1, 2, 4, 8 devices, the first so many.

    Yields:
        (property, problem); problem is "" where the property holds.

    Raises:
        ValueError: unknown slot, name or option.
    """
    if slot not in SLOTS:
        raise ValueError(f"unknown slot {slot!r}; it is one of: {', '.join(SLOTS)}")
    function = _with_options(slot, name, options)
    if slot in HOST_CHECKS:
        yield from HOST_CHECKS[slot](function)
        return
    functions = {s: bind(spec, SLOTS[s]) for s, spec in BASELINE.items()}
    functions[slot] = function
    run = jax.jit(functools.partial(value_and_grad, functions))
    base = make_step(PACKED)
    value, grad = run(base)
    reference = value, by_sample(grad, PACKED)

    def differs(step: Step, placement: Placement, result: Any = None) -> str:
        found = run(step) if result is None else result
        return _difference(reference, (found[0], by_sample(found[1], placement)))

    yield "finite", _not_finite(value, grad)
    yield "shape and dtype", _wrong_shape(functions, slot, base)
    yield "no gradient where not sampled", _leak(grad, base.batch.mask)
    yield "packing", differs(make_step(UNPACKED), UNPACKED)
    yield "order of rows", differs(make_step(REORDERED), REORDERED)
    yield "NaN and inf where not sampled", differs(poisoned(base), PACKED)
    yield "extreme ratios", _not_finite(*run(extreme(base)))
    yield "nothing sampled", _empty(run, base)
    # All so far took one compilation; each of these takes its own.
    yield "padding", differs(make_step(PACKED, length=LENGTH + 8), PACKED)
    yield "micro-batches", differs(base, PACKED, _in_micro_batches(functions, base))
    yield "bfloat16", _half_precision(run, base)
    twice = jax.tree.map(lambda x: jnp.stack([x, x]), base)
    found = jax.tree.map(lambda x: x[1], jax.jit(jax.vmap(run))(twice))
    yield "vmap", differs(base, PACKED, found)
    for devices in (1, 2, 4, 8)[:meshes]:
        found = run(spread_over(base, devices))
        yield f"{devices} devices", differs(base, PACKED, found)


def value_and_grad(
    functions: Mapping[str, Callable],
    step: Step,
    start: jax.Array | int = 0,
    *,
    rows: int = ROWS,
) -> tuple[jax.Array, jax.Array]:
    """Loss [] of some rows of a step, and its gradient [B, T] by log-probability.

    Credit, weights and corrections are made over the whole step; `rows` rows from
    `start` on are then cut from it, as a micro-batch is.
    """
    targets = _targets(functions, step)
    part = jax.tree.map(
        lambda x: jax.lax.dynamic_slice_in_dim(x, start, rows),
        (step.logprobs, targets),
    )
    return jax.value_and_grad(
        lambda logprobs: policy_loss(
            logprobs,
            part[1],
            log_ratio=functions["log_ratio"],
            surrogate=functions["surrogate"],
            kl=functions["kl"],
            kl_coef=0.1,
        )[0]
    )(part[0])


def _targets(functions: Mapping[str, Callable], step: Step) -> Targets:
    batch, scores = step.batch, step.scores
    advantages = functions["credit"](step.outcome, scores, batch)
    advantages = advantages + step.advantage_noise
    ids = batch.mask, batch.segment_ids
    correction = functions["correction"](
        scores.logprobs, batch.behavior_logprobs, *ids, advantages
    )
    return Targets(
        mask=batch.mask,
        segment_ids=batch.segment_ids,
        old_logprobs=scores.logprobs,
        advantages=advantages,
        weights=functions["aggregation"](*ids, batch.prompt_ids) * correction,
        ref_logprobs=scores.ref_logprobs,
    )


def _with_options(slot: str, name: str, options: Mapping[str, Any]) -> Callable:
    """The function, bound to the given options and to OPTIONS for the rest."""
    function = bind({"name": name} | dict(options), SLOTS[slot])
    needed = [
        n
        for n, p in inspect.signature(function).parameters.items()
        if p.kind is p.KEYWORD_ONLY and p.default is p.empty and n != "rng"
    ]
    unknown = [n for n in needed if n not in OPTIONS]
    if unknown:
        raise ValueError(f"{name} needs {', '.join(unknown)}: give name=value")
    return functools.partial(function, **{n: OPTIONS[n] for n in needed})


def _difference(reference: Any, found: Any, rtol: float = 1e-4) -> str:
    """How far value or gradient moved, "" if not beyond rounding."""
    pairs = zip(reference[1], found[1], strict=True)
    scale = max(np.abs(part).max() for part in reference[1])
    moved = max(np.abs(a - b).max() for a, b in pairs)
    value, other = float(reference[0]), float(found[0])
    if not abs(value - other) <= rtol * max(abs(value), scale):
        return f"the loss goes from {value:.6g} to {other:.6g}"
    if not moved <= rtol * scale:
        return f"the gradient moves by {moved:.3g} (largest entry {scale:.3g})"
    return ""


def _not_finite(value: jax.Array, grad: jax.Array) -> str:
    if not np.isfinite(value):
        return f"the loss is {float(value)}"
    bad = int((~np.isfinite(np.asarray(grad, np.float32))).sum())
    return f"{bad} gradient entries are not finite" if bad else ""


def _leak(grad: jax.Array, mask: np.ndarray) -> str:
    leaked = int((np.asarray(grad)[~mask] != 0).sum())
    return f"{leaked} tokens that were not sampled have a gradient" if leaked else ""


def _wrong_shape(functions: Mapping[str, Callable], slot: str, step: Step) -> str:
    """The function's own output must be [B, T] and float32."""
    batch, scores, noise = step.batch, step.scores, step.advantage_noise
    ids = batch.mask, batch.segment_ids
    arguments = {
        "surrogate": (noise, noise),
        "log_ratio": (step.logprobs, scores.logprobs, *ids, noise),
        "aggregation": (*ids, batch.prompt_ids),
        "kl": (step.logprobs, scores.ref_logprobs),
        "correction": (scores.logprobs, batch.behavior_logprobs, *ids, noise),
        "credit": (step.outcome, scores, batch),
    }[slot]
    out = jax.eval_shape(functions[slot], *arguments)
    if (out.shape, out.dtype) == (batch.mask.shape, jnp.float32):
        return ""
    return f"gives {out.dtype}{list(out.shape)}, not float32{list(batch.mask.shape)}"


def _in_micro_batches(functions: Mapping[str, Callable], step: Step) -> Any:
    run = jax.jit(functools.partial(value_and_grad, functions, rows=2))
    parts = [run(step, start) for start in range(0, ROWS, 2)]
    return sum(v for v, _ in parts), jnp.concatenate([g for _, g in parts])


def _half_precision(run: Callable, step: Step) -> str:
    """bfloat16 inputs must compute in float32: only the rounded inputs may show."""
    logprobs = jnp.asarray(step.logprobs, jnp.bfloat16)
    rounded = run(replace(step, logprobs=np.asarray(logprobs, np.float32)))
    value, grad = run(replace(step, logprobs=logprobs))
    if value.dtype != jnp.float32:
        return f"the loss of bfloat16 log-probabilities is {value.dtype}"
    expected = rounded[0], by_sample(rounded[1], PACKED)
    return _difference(expected, (value, by_sample(grad, PACKED)), rtol=1e-2)


def _empty(run: Callable, step: Step) -> str:
    nothing = replace(step.batch, mask=np.zeros_like(step.batch.mask))
    value, grad = run(replace(step, batch=nothing))
    if float(value) != 0.0 or np.any(np.asarray(grad) != 0.0):
        return f"the loss is {float(value)}, largest gradient {np.abs(grad).max()}"
    return ""
