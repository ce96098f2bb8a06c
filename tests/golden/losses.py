"""Mappings of the loss, KL, log-probability and correction files."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from agentic_jax.batch import Targets
from agentic_jax.config import bind
from agentic_jax.losses import AGGREGATIONS, CORRECTIONS, KLS, LOG_RATIOS, SURROGATES
from agentic_jax.losses.clipping import (
    clip_fractions,
    clipped_surrogate,
    dual_clipped_surrogate,
)
from agentic_jax.losses.correction import normalize_weights
from agentic_jax.losses.logprobs import token_entropy, token_logprobs
from agentic_jax.losses.policy import mean_metrics, policy_loss

AGGREGATION_NAMES = {
    "token-mean": "token_mean",
    "seq-mean-token-sum": "sequence_sum",
    "seq-mean-token-mean": "sequence_mean",
    "seq-mean-token-sum-norm": "fixed_length",
}
KL_NAMES = {
    "k1": "k1",
    "k2": "k2",
    "mse": "k2",
    "abs": "abs",
    "k3": "k3_clamped",
    "low_var_kl": "k3_clamped",
    "k3+": "k3_plus",
    "k3_trl": "k3",
}


def arrays(case: dict[str, Any], *names: str) -> tuple[np.ndarray, ...]:
    return tuple(np.array(case["inputs"][name], dtype=float) for name in names)


def rows(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One trajectory per row: the mask as bool, and segment ids of 1."""
    return mask > 0, np.ones(mask.shape, np.int32)


def aggregate(mask: np.ndarray, params: dict[str, Any]) -> jax.Array:
    """Weights by the reference's name of the aggregation, in the reference's scale."""
    mask, segment_ids = rows(mask)
    name = AGGREGATION_NAMES[params["agg"]]
    if name != "fixed_length":
        weights = AGGREGATIONS[name](mask, segment_ids, segment_ids)
        # verl adds 1e-8 to the length of each sequence: it shows where terms cancel.
        length = mask.sum(axis=1, keepdims=True)
        return weights * length / (length + (1e-8 if name == "sequence_mean" else 0.0))
    # verl divides by the horizon alone; ours divides by the number of sequences too.
    horizon = params.get("loss_scale_factor", mask.shape[1])
    weights = AGGREGATIONS[name](mask, segment_ids, segment_ids, max_tokens=horizon)
    return weights * mask.any(axis=1).sum()


def loss_and_grad(
    case: dict[str, Any], *, log_ratio: str, surrogate: dict[str, Any], weights: Any
) -> dict[str, Any]:
    old, now, advantages, mask = arrays(
        case, "old_logprob", "logprob", "advantages", "mask"
    )
    mask, segment_ids = rows(mask)
    targets = Targets(mask, segment_ids, old, advantages, weights)
    (loss, metrics), grad = jax.value_and_grad(
        lambda x: policy_loss(
            x,
            targets,
            log_ratio=LOG_RATIOS[log_ratio],
            surrogate=bind(surrogate, SURROGATES),
            kl=KLS["none"],
            kl_coef=0.0,
        ),
        has_aux=True,
    )(jnp.asarray(now))
    return {"loss": loss, "grad_logprob": grad, "metrics": mean_metrics(metrics)}


def ratios_of(case: dict[str, Any], log_ratio: str) -> tuple[Any, ...]:
    old, now, advantages, mask = arrays(
        case, "old_logprob", "logprob", "advantages", "mask"
    )
    mask, segment_ids = rows(mask)
    ratio = LOG_RATIOS[log_ratio](now, old, mask, segment_ids, advantages)
    return ratio, jnp.where(mask, advantages, 0.0), mask


def clip_metrics(
    case: dict[str, Any], *, log_ratio: str, cap: float | None
) -> dict[str, Any]:
    """verl's metrics: clipped on either side, and held by the dual clip."""
    ratio, advantages, mask = ratios_of(case, log_ratio)
    eps = {k: case["params"][k] for k in ("eps_low", "eps_high")}
    low, high = clip_fractions(ratio, advantages, mask, **eps)
    lower = 0.0
    if cap is not None:
        plain = clipped_surrogate(ratio, advantages, **eps)
        dual = dual_clipped_surrogate(ratio, advantages, cap=cap, **eps)
        lower = jnp.sum((dual < plain) & mask) / jnp.maximum(jnp.sum(mask), 1)
    return {"actor/pg_clipfrac": low + high, "actor/pg_clipfrac_lower": lower}


def mean_token_kl(case: dict[str, Any]) -> jax.Array:
    ratio, _, mask = ratios_of(case, "token")
    return -jnp.sum(ratio) / jnp.maximum(jnp.sum(mask), 1)


def ppo(case: dict[str, Any]) -> dict[str, Any]:
    params = case["params"]
    (mask,) = arrays(case, "mask")
    weights = aggregate(mask, params)
    if "is_weights" in case["inputs"]:
        weights = weights * arrays(case, "is_weights")[0]
    surrogate = {
        "name": "dual_clipped",
        "eps_low": params["eps_low"],
        "eps_high": params["eps_high"],
        "cap": params["dual_clip_c"],
    }
    result = loss_and_grad(
        case, log_ratio="token", surrogate=surrogate, weights=weights
    )
    result["metrics"] = clip_metrics(
        case, log_ratio="token", cap=params["dual_clip_c"]
    ) | {"actor/ppo_kl": mean_token_kl(case)}
    return result


def microbatch(case: dict[str, Any]) -> dict[str, Any]:
    """Weights are made over the whole step and cut with the rows."""
    params, split = case["params"], case["inputs"]["split_at"]
    (mask,) = arrays(case, "mask")
    weights = np.asarray(aggregate(mask, params))
    surrogate = {
        "name": "dual_clipped",
        "eps_low": params["eps_low"],
        "eps_high": params["eps_high"],
        "cap": params["dual_clip_c"],
    }

    def part(rows_of_part: slice) -> dict[str, Any]:
        inputs = {
            k: v[rows_of_part] for k, v in case["inputs"].items() if k != "split_at"
        }
        own = {"inputs": inputs, "params": params}
        result = loss_and_grad(
            own, log_ratio="token", surrogate=surrogate, weights=weights[rows_of_part]
        )
        result["metrics"] = clip_metrics(
            own, log_ratio="token", cap=params["dual_clip_c"]
        ) | {"actor/ppo_kl": mean_token_kl(own)}
        return result

    full = part(slice(None))
    micro0, micro1 = part(slice(0, split)), part(slice(split, None))
    return {
        "full": full,
        "micro0": micro0,
        "micro1": micro1,
        "WRONG_mean_of_micro_means": micro0["loss"] + micro1["loss"],
    }


def gspo(case: dict[str, Any]) -> dict[str, Any]:
    params = case["params"]
    (mask,) = arrays(case, "mask")
    weights = aggregate(mask, params)
    surrogate = {
        "name": "clipped",
        "eps_low": params["eps_low"],
        "eps_high": params["eps_high"],
    }
    bound = functools.partial(loss_and_grad, case, surrogate=surrogate, weights=weights)
    token, sequence = bound(log_ratio="sequence_token"), bound(log_ratio="sequence")
    ratio, _, _ = ratios_of(case, "sequence")
    # A fully masked sequence has no ratio; the reference says exp(0).
    per_sequence = jnp.exp(jnp.max(jnp.where(mask > 0, ratio, -jnp.inf), axis=1))
    metrics = clip_metrics(case, log_ratio="sequence", cap=None)
    return {
        "loss": token["loss"],
        "grad_logprob": token["grad_logprob"],
        "metrics": metrics | {"actor/ppo_kl": token["metrics"]["policy/step_kl"]},
        "seq_ratio": jnp.where(mask.any(axis=1), per_sequence, 1.0),
        "seq_form_loss": sequence["loss"],
        "seq_form_grad": sequence["grad_logprob"],
    }


def other(case: dict[str, Any]) -> dict[str, Any]:
    params, name = case["params"], case["name"]
    old, advantages, mask = arrays(case, "old_logprob", "advantages", "mask")
    weights = aggregate(mask, params)
    ratio, _, sampled = ratios_of(case, "token")
    fractions = {"actor/pg_clipfrac": 0.0, "actor/pg_clipfrac_lower": 0.0}
    constant = 0.0
    if "tau_pos" in params:
        options = {k: params[k] for k in ("tau_pos", "tau_neg")}
        surrogate = {"name": "sapo", **options}
    elif "eps_low" in params:
        options = {k: params[k] for k in ("eps_low", "eps_high")}
        surrogate = {"name": "cispo", **options}
        # verl counts ratios beyond either bound, whatever the sign of the advantage.
        up, down = jnp.ones_like(ratio), -jnp.ones_like(ratio)
        fractions["actor/pg_clipfrac"] = (
            clip_fractions(ratio, up, sampled, **options)[1]
            + clip_fractions(ratio, down, sampled, **options)[0]
        )
        clipped = jnp.clip(
            jnp.exp(ratio), 1 - params["eps_low"], 1 + params["eps_high"]
        )
        constant = clipped * advantages * old
    elif "is_weights" in case["inputs"]:
        surrogate, fractions = {"name": "reinforce"}, {}
        weights = weights * arrays(case, "is_weights")[0]
        constant = advantages * old
    else:
        raise KeyError(f"no surrogate known for {name}")
    result = loss_and_grad(
        case, log_ratio="token", surrogate=surrogate, weights=weights
    )
    # Reference losses hold -A logp, ours -A (logp - old): the difference is constant.
    result["loss"] -= jnp.sum(jnp.where(sampled, weights * constant, 0.0))
    result["metrics"] = fractions | {"actor/ppo_kl": mean_token_kl(case)}
    return result


def kl(case: dict[str, Any]) -> dict[str, Any]:
    now, ref = arrays(case, "logprob", "ref_logprob")
    estimator = KLS[KL_NAMES[case["params"]["kind"]]]
    values = estimator(now, ref)
    grad = jax.grad(lambda x: estimator(x, ref).sum())(jnp.asarray(now))
    result = {"kl": values, "grad_logprob": grad}
    if "mask" in case["inputs"]:
        (mask,) = arrays(case, "mask")
        for name in ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean"):
            weights = aggregate(mask, {"agg": name})
            result[f"agg_{name}"] = jnp.sum(weights * values)
    return result


def entropy_logprob(case: dict[str, Any]) -> dict[str, Any]:
    (logits,) = arrays(case, "logits")
    if logits.ndim == 2:  # Positions without a batch.
        inputs = case["inputs"] | {"logits": logits[None]}
        return {k: v[0] for k, v in entropy_logprob(case | {"inputs": inputs}).items()}
    temperature = case["params"]["temperature"]
    if "input_ids" not in case["inputs"]:
        # The reference does not shift: a position before the first makes up for it.
        ahead = np.concatenate([logits, logits[:, :1]], axis=1)
        entropy = token_entropy(ahead, temperature=temperature)[:, 1:]
        return {
            "entropy": entropy,
            "response_entropy": entropy,
            "d_sum_entropy_d_scaled_logits": _scaled_grad(
                lambda x: token_entropy(
                    jnp.concatenate([x, x[:, :1]], axis=1), temperature=temperature
                )[:, 1:],
                logits,
                temperature,
            ),
        }
    tokens = np.array(case["inputs"]["input_ids"], np.int32)
    start = case["inputs"]["prompt_len"]

    def logprobs(x: jax.Array) -> jax.Array:
        return token_logprobs(x, tokens, temperature=temperature)[:, start:]

    def entropies(x: jax.Array) -> jax.Array:
        return token_entropy(x, temperature=temperature)[:, start:]

    return {
        "response_logprobs": logprobs(logits),
        "response_entropy": entropies(logits),
        "d_sum_entropy_d_scaled_logits": _scaled_grad(entropies, logits, temperature),
        "d_sum_logprob_d_scaled_logits": _scaled_grad(logprobs, logits, temperature),
        "WRONG_off_by_one": logprobs(logits),
        "WRONG_entropy_without_T": entropies(logits),
    }


def _scaled_grad(function: Any, logits: np.ndarray, temperature: float) -> jax.Array:
    grad = jax.grad(lambda x: function(x).sum())(jnp.asarray(logits))
    return grad * temperature


def correction(case: dict[str, Any]) -> dict[str, Any]:
    params, inputs = case["params"], case["inputs"]
    trainer = "train_logprob" if "train_logprob" in inputs else "logprob"
    old, behavior, mask = arrays(case, trainer, "rollout_logprob", "mask")
    mask, ids = rows(mask)
    zeros = np.zeros(mask.shape)

    def weights(name: str, advantages: np.ndarray = zeros, **options: Any) -> jax.Array:
        return CORRECTIONS[name](old, behavior, mask, ids, advantages, **options)

    if "level" in params:
        name = {"token": "tis", "sequence": "tis_sequence"}[params["level"]]
        result = weights(name, cap=params["threshold"])
        if params["batch_normalize"]:
            # The reference averages over tokens, or over sequences, each once.
            counted = mask
            if params["level"] == "sequence":
                first = np.arange(mask.shape[1])[None, :] == mask.argmax(1)[:, None]
                counted = mask & first
            mean = jnp.sum(jnp.where(counted, result, 0.0)) / counted.sum()
            result = (
                normalize_weights(result, mask)
                if params["level"] == "token"
                else result / mean
            )
        return {"weights": result}
    if "rs" in params:
        return {"mask": _rejection(old, behavior, mask, ids, params)}
    if "clip_min" in params:
        return {
            "weights": weights("mis", low=params["clip_min"], high=params["clip_max"])
        }
    if "low" in params:
        return {"weights": weights("icepop", low=params["low"], high=params["high"])}
    if "eps" in params:
        return {"keep": weights("probability_mask", max_difference=params["eps"])}
    if "delta" in params:
        advantages = np.broadcast_to(
            np.array(inputs["advantages_seq"])[:, None], mask.shape
        )
        kept = weights("opsm", advantages, delta=params["delta"])
        # A sequence without sampled tokens is kept by the reference.
        return {"keep": (kept.sum(1) > 0) | ~mask.any(1)}
    raise KeyError(f"no correction known for {case['name']}")


def _rejection(
    old: np.ndarray,
    behavior: np.ndarray,
    mask: np.ndarray,
    ids: np.ndarray,
    params: dict[str, Any],
) -> jax.Array:
    """verl's rejection by statistics, one or several joined by commas."""
    keep = mask
    rules = zip(params["rs"].split(","), params["threshold"].split(","), strict=True)
    for rule, threshold in rules:
        level, estimator = rule.rsplit("_", 1)
        low, high = -math.inf, float(threshold.split("_")[-1])
        if estimator == "k1":  # Bounds of a ratio, as logarithms.
            low, high = (math.log(float(x)) for x in threshold.split("_"))
        factors = CORRECTIONS["rejection_mask"](
            old,
            behavior,
            mask,
            ids,
            np.zeros(mask.shape),
            estimator=estimator,
            level=level.removeprefix("seq_"),
            low=low,
            high=high,
        )
        keep = keep & (factors > 0)
    return keep
