"""Mappings of the advantage, TEPO, AEPO and end-to-end files."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from agentic_jax.batch import Batch, Outcome, Scores, Targets
from agentic_jax.config import bind
from agentic_jax.losses import CREDITS, KLS, LOG_RATIOS, SURROGATES
from agentic_jax.losses.advantages import normalize_group, scale_by_batch
from agentic_jax.losses.credit import collect, scale_by_entropy
from agentic_jax.losses.entropy import (
    entropy_change,
    entropy_change_ratio,
    turn_to_segment,
    turns_of,
)
from agentic_jax.losses.policy import policy_loss
from agentic_jax.losses.tepo import (
    call_advantages,
    call_rewards,
    indicators,
    sparse_rewards,
)
from agentic_jax.rewards.shaping import overlong_penalty, tool_bonus_reward
from tests.golden.compare import Partly
from tests.golden.losses import aggregate, arrays, loss_and_grad

SINGLETON = "groups of one get 0 here, their raw reward in the reference"


def outcome_of(rewards: list[float], groups: list[str]) -> Outcome:
    """Ragged groups as [P, G], the sample of row i in segment 1 of row i."""
    names = list(dict.fromkeys(groups))
    members = [[i for i, g in enumerate(groups) if g == name] for name in names]
    shape = (len(names), max(map(len, members)))
    reward, valid = np.zeros(shape), np.zeros(shape, bool)
    row = np.zeros(shape, np.int32)
    for p, indices in enumerate(members):
        for g, i in enumerate(indices):
            reward[p, g], valid[p, g], row[p, g] = rewards[i], True, i
    segment = valid.astype(np.int32)
    return Outcome(reward, reward, 0 * segment, valid, row, segment)


def batch_of(mask: np.ndarray, **fields: np.ndarray) -> Batch:
    """One trajectory per row; the fields that credit does not read are 0."""
    zeros, ones = np.zeros(mask.shape, np.int32), np.ones(mask.shape, np.int32)
    given = {
        "tokens": zeros,
        "positions": zeros,
        "segment_ids": ones,
        "prompt_ids": ones,
        "turn_ids": ones,
        "mask": mask > 0,
        "behavior_logprobs": np.zeros(mask.shape),
    }
    return Batch(**given | fields)


def per_row(per_sample: jax.Array, outcome: Outcome) -> np.ndarray:
    """[P, G] back to the order of the rows."""
    result = np.zeros(outcome.valid.sum(), np.asarray(per_sample).dtype)
    result[outcome.row[outcome.valid]] = np.asarray(per_sample)[outcome.valid]
    return result


def advantages(case: dict[str, Any]) -> dict[str, Any]:
    params, groups = case["params"], case["inputs"]["group_index"]
    (mask,) = arrays(case, "mask")
    outcome = outcome_of(case["inputs"]["rewards"], groups)
    batch = batch_of(mask)
    in_group = np.array([groups.count(name) > 1 for name in groups])
    tokens_in_group = np.broadcast_to(in_group[:, None], mask.shape)

    def credit(name: str, **options: Any) -> Partly:
        value = CREDITS[name](outcome, None, batch, **options)
        return Partly(np.asarray(value), tokens_in_group, SINGLETON)

    def per_sequence(eps: float) -> np.ndarray:
        normalized = jax.vmap(
            lambda r, v: normalize_group(r, v, eps=eps, ddof=params["ddof"])
        )(outcome.reward, outcome.valid)
        return per_row(normalized, outcome)

    by_batch = scale_by_batch(outcome.reward, outcome.valid, eps=params["eps_trl"])
    normalized = credit("group_normalized", eps=params["eps_verl"])
    return {
        "grpo_std": normalized,
        "grpo_nostd_drgrpo": credit("centered"),
        "rloo": credit("leave_one_out"),
        "rloo_vectorized": credit("leave_one_out"),
        "opo": credit("opo"),
        "grpo_vectorized_f32": dataclasses.replace(normalized, rtol=1e-4, atol=1e-4),
        "reinforce_pp_baseline": CREDITS["reinforce_plus_plus_baseline"](
            outcome, None, batch, eps=1e-8
        ),
        "trl_group_per_seq": per_sequence(params["eps_trl"]),
        "trl_batch_scale_per_seq": per_row(by_batch, outcome),
        "per_seq_recommended": per_sequence(params["eps_verl"]),
    }


def is_below_float32(case: dict[str, Any]) -> bool:
    """The rewards differ by so little that float32 rounds the difference away."""
    rewards = np.array(case["inputs"]["rewards"])
    return np.ptp(rewards) < 1e-4 * np.abs(rewards).max()


def has_singleton(case: dict[str, Any]) -> bool:
    groups = case["inputs"]["group_index"]
    return any(groups.count(name) == 1 for name in groups)


def turns_from_roles(role: np.ndarray) -> dict[str, np.ndarray]:
    """Turn ids and calls: a turn is policy tokens and the tool output after them."""
    turn_ids, turn_calls = np.zeros_like(role), np.zeros_like(role)
    for r, roles in enumerate(role):
        turn = 0
        for t, kind in enumerate(roles):
            if kind in (1, 2) and (t == 0 or roles[t - 1] in (0, 3)):
                turn += 1
            turn_ids[r, t] = turn if kind else 0
        for k in range(1, turn + 1):
            mine = turn_ids[r] == k
            turn_calls[r, mine] = int((roles[mine] == 3).any())
    return {"turn_ids": turn_ids, "turn_calls": turn_calls, "call_mask": role == 2}


def tepo(case: dict[str, Any]) -> dict[str, Any]:
    params = case["params"]
    (entropy,) = arrays(case, "token_entropy")
    role = np.array(case["inputs"]["role"], np.int32)
    mask = (role == 1) | (role == 2)
    batch = batch_of(mask, **turns_from_roles(role), segment_ids=(role > 0) * 1)
    outcome = outcome_of(case["inputs"]["f1"], case["inputs"]["group"])
    scores = Scores(entropy, entropy)
    markup = "in" if params["include_tool_call_tokens_in_entropy"] else "out"
    common = {"eps": params["eps"], "markup": markup, "ddof": params["ddof"]}
    turns = turns_of(batch, entropy, markup=markup)
    normalize = jax.vmap(
        lambda r, v: normalize_group(r, v, eps=params["eps"], ddof=params["ddof"])
    )
    is_turn = np.asarray(turns.segment) > 0
    is_call = is_turn & (np.asarray(turns.calls) > 0)
    alpha = {"alpha": params["alpha"]}

    def rows_of(per_turn: jax.Array, where: np.ndarray) -> list[list[float]]:
        return [list(v[w]) for v, w in zip(np.asarray(per_turn), where, strict=True)]

    m = turn_to_segment(turns.calls * indicators(turns), turns)
    sparse = sparse_rewards(outcome, turns)
    by_call = call_advantages(
        outcome, turns, eps=params["eps"], ddof=params["ddof"], **alpha
    )
    has_next = np.asarray(turns.has_next)
    return {
        "segment_index": np.where(mask, np.asarray(turns.turn_index) - 1, -1),
        "segment_entropy": rows_of(turns.entropy, is_turn),
        "delta_entropy": rows_of(entropy_change(turns), has_next),
        "delta_ratio": rows_of(
            entropy_change_ratio(turns, eps=params["eps_ratio"]), has_next
        ),
        "indicator": rows_of(indicators(turns), is_call),
        "n_tools": per_row(
            collect(turn_to_segment(turns.calls, turns), outcome), outcome
        ),
        "m_tools": per_row(collect(m, outcome), outcome),
        "sparse_reward": per_row(sparse, outcome),
        "sparse_adv_traj": per_row(normalize(sparse, outcome.valid), outcome),
        "sparse_token_adv": CREDITS["tepo_sparse"](outcome, scores, batch, **common),
        "f1_adv_traj": per_row(normalize(outcome.reward, outcome.valid), outcome),
        "tool_reward": rows_of(call_rewards(outcome, turns, **alpha), is_call),
        "tool_adv": rows_of(by_call, is_call),
        "dense_token_adv": {
            final: CREDITS["tepo_dense"](
                outcome, scores, batch, final=final, **alpha, **common
            )
            for final in ("final_traj", "final_zero", "final_last_tool")
        },
        "train_mask": batch.mask,
    }


def aepo_loss(case: dict[str, Any]) -> dict[str, Any]:
    """The name says whether the clip keeps its gradient and advantages are scaled."""
    params = case["params"]
    raw, mask, entropy = arrays(case, "advantages", "mask", "entropy")
    used = raw
    if case["name"].endswith("adv1"):
        used = np.asarray(
            scale_by_entropy(raw, entropy, mask > 0, alpha=params["entropy_alpha"])
        )
    surrogate = {
        "name": "gradient_keeping" if "clip1" in case["name"] else "dual_clipped",
        "eps_low": params["eps_low"],
        "eps_high": params["eps_high"],
        "cap": params["dual_clip_c"],
    }
    changed = {"inputs": case["inputs"] | {"advantages": used}, "params": params}
    result = loss_and_grad(
        changed, log_ratio="token", surrogate=surrogate, weights=aggregate(mask, params)
    )
    masked = Partly(used, mask > 0, "masked tokens", rest_is_zero=False)
    return result | {"advantages_used": masked}


def hard_advantage(case: dict[str, Any]) -> dict[str, Any]:
    """One token per tree node: equal names up to a node are a shared prefix."""
    tree = case["inputs"]["tree"]
    length = max(map(len, tree))
    numbers: dict[str, int] = {}
    tokens = np.zeros((len(tree), length), np.int32)
    segment_ids = np.zeros_like(tokens)
    for i, path in enumerate(tree):
        for t, name in enumerate(path):
            # A leaf belongs to its trajectory alone, whatever it is called.
            is_leaf = t == len(path) - 1
            key = f"{name}{i}" if is_leaf else name
            tokens[i, t] = numbers.setdefault(key, len(numbers) + 1)
            segment_ids[i, t] = 1
    outcome = outcome_of(case["inputs"]["rewards"], ["p"] * len(tree))
    batch = batch_of(segment_ids, tokens=tokens, segment_ids=segment_ids)
    hard = np.asarray(CREDITS["arpo_hard"](outcome, None, batch, eps=1e-6))
    soft = normalize_group(outcome.reward, outcome.valid, eps=1e-6)
    named = {}
    for i, path in enumerate(tree):
        for t, name in enumerate(path):
            named[f"traj{i}_leaf" if name == "leaf" else name] = hard[i, t]
    return {"soft": per_row(soft, outcome), "hard": named}


def recipe(case: dict[str, Any]) -> dict[str, Any]:
    """Reward, advantage, loss and gradient of one of the Demystify recipes."""
    params, inputs = case["params"], case["inputs"]
    old, now, ref, mask = arrays(case, "old_logprob", "logprob", "ref_logprob", "mask")
    reading = {"code": "code", "paper_min0": "paper"}[params["reward_rule"]]
    rewards = []
    for correct, calls, tokens in zip(
        inputs["correct"], inputs["n_tools"], inputs["response_len"], strict=True
    ):
        reward = tool_bonus_reward(correct, calls, reading=reading, bonus=0.1)
        if params["recipe"] != "T":  # GRPO-T has no overlong term.
            reward += overlong_penalty(
                tokens, max_tokens=params["L_max"], buffer_tokens=params["L_cache"]
            )
        rewards.append(reward)
    outcome = outcome_of(rewards, inputs["group"])
    batch = batch_of(mask)
    token_advantages = CREDITS["group_normalized"](outcome, None, batch, eps=1e-6)
    is_sequence = params["recipe"] == "SCR"
    low, high = params["eps"]
    surrogate = {"name": "clipped", "eps_low": low, "eps_high": high}
    if params["dual_clip_c"] is not None:
        surrogate |= {"name": "dual_clipped", "cap": params["dual_clip_c"]}
    aggregation = "seq-mean-token-mean" if is_sequence else "token-mean"
    targets = Targets(
        batch.mask,
        batch.segment_ids,
        old,
        token_advantages,
        aggregate(mask, {"agg": aggregation}),
        ref,
    )
    loss, grad = jax.value_and_grad(
        lambda x: policy_loss(
            x,
            targets,
            log_ratio=LOG_RATIOS["sequence_token" if is_sequence else "token"],
            surrogate=bind(surrogate, SURROGATES),
            kl=KLS["k3_clamped"],
            kl_coef=params["kl_beta"],
        )[0]
    )(jnp.asarray(now))
    return {
        "reward": rewards,
        "advantage": token_advantages,
        "loss": loss,
        "grad_logprob": grad,
    }
