"""Mappings of the files about text, selection, branching and metrics."""

import math
from typing import Any

import numpy as np

from agentic_jax.evaluation.estimators import (
    avg_at_k,
    maj_at_k,
    pass_at_k_of_counts,
)
from agentic_jax.rewards import answers as text
from agentic_jax.rewards.shaping import overlong_penalty, tool_bonus_reward
from agentic_jax.rollout import branching, select
from tests.golden.credit import aepo_loss, hard_advantage


def answers(case: dict[str, Any]) -> dict[str, Any]:
    inputs = case["inputs"]
    if "ground_truth" in inputs:
        return _math(inputs["solution"], inputs["ground_truth"])
    if "prediction" in inputs:
        pair = inputs["prediction"], inputs["gold"]
        return {
            "f1": text.f1(*pair),
            "em": text.exact_match(*pair),
            "subem": text.sub_exact_match(*pair),
        }
    if isinstance(inputs["gold"], dict):
        # Prompt and response in one, and the prompt ends with an example of the tag.
        _, _, response = inputs["solution"].partition("</answer>")
        answer = text.extract_tag(response, "answer") or ""
        return {"em": text.exact_match(answer, inputs["gold"]["target"])}
    score = text.arpo_composite(inputs["solution"], inputs["gold"])
    box = text.extract_boxed(text.extract_tag(inputs["solution"], "answer") or "")
    f1 = text.f1(box, inputs["gold"]) if score >= 0 and box is not None else 0.0
    return {"score": score, "f1": f1}


def _math(solution: str, gold: str) -> dict[str, Any]:
    box = text.extract_boxed(solution, last_chars=100)
    strict = box is not None and text.equal_strict(box, gold)
    line = text.extract_answer_line(solution[-300:])
    minerva = line is not None and text.equal_minerva(line, gold)
    return {
        "strict_box": {"score": 1.0 if strict else -1.0, "acc": strict, "pred": box},
        "minerva": {
            "score": 1.0 if minerva else -1.0,
            "acc": minerva,
            "pred": "[INVALID]" if line is None else text._minerva(line),
        },
    }


def arpo_aepo(case: dict[str, Any]) -> dict[str, Any]:
    inputs = case["inputs"]
    if "uniform" in inputs:
        return _branch(inputs, case["params"])
    if "H_root" in inputs:
        numbers = inputs["k"], inputs["H_root"], inputs["H_tool_avg"]
        beta = case["params"]["beta"]
        return {
            "m_paper_real": branching.root_share(*numbers, beta=beta),
            "m_code": branching.root_rollouts(*numbers, beta=beta),
        }
    if "top10_logprobs" in inputs:
        tokens = min(len(inputs["top10_logprobs"]), case["params"]["max_tokens"])
        entropy = branching.step_entropy(
            np.array(inputs["top10_logprobs"]),
            vocab_size=case["params"]["vocab"],
            max_tokens=case["params"]["max_tokens"],
        )
        return {"entropy_code": entropy, "entropy_token_mean": entropy / tokens}
    return aepo_loss(case) if "entropy" in inputs else hard_advantage(case)


def _branch(inputs: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
    draw = inputs["uniform"], inputs["delta_entropy"]
    weight = {"entropy_weight": params["entropy_weight"]}
    threshold = {"branch_probability": params["branch_probability"]}
    arpo = branching.arpo_branch_score(*draw, **weight)
    aepo = branching.aepo_branch_score(*draw, inputs["consecutive_branches"], **weight)
    return {
        "arpo_prob": arpo,
        "arpo_branch": branching.arpo_branches(arpo, **threshold),
        "aepo_prob": aepo,
        "aepo_branch": branching.aepo_branches(aepo, **threshold),
    }


def pass_and_majority(case: dict[str, Any]) -> dict[str, Any]:
    inputs = case["inputs"]
    if "preds" in inputs:
        correct = np.array([[p == inputs["gold"] for p in inputs["preds"]]], float)
        return {
            "maj_acc": maj_at_k([inputs["preds"]], correct)[0],
            "avg": avg_at_k(correct)[0],
        }
    return {
        f"pass@{k}": pass_at_k_of_counts(inputs["n"], inputs["c"], k=k)
        for k in range(1, inputs["n"] + 1)
    }


def reward_overlong(case: dict[str, Any]) -> dict[str, Any]:
    params = case["params"]
    values = [
        overlong_penalty(n, max_tokens=params["L_max"], buffer_tokens=params["L_cache"])
        for n in case["inputs"]["lengths"]
    ]
    return {"paper_piecewise": values}


def reward_tool(case: dict[str, Any]) -> dict[str, Any]:
    correct, calls = case["inputs"]["correct"], case["inputs"]["n_tool_rounds"]

    def reward(reading: str) -> float:
        return tool_bonus_reward(correct, calls, reading=reading, bonus=0.1)

    return {
        "code_score": reward("code"),
        "code_outcome_only": reward("flat"),
        # The printed formula says nothing of wrong answers.
        "paper_correct_bonus": reward("paper") if correct else None,
        "reading_A_min0": reward("paper"),
        # Right answers as printed, wrong ones as in the code.
        "reading_B_code_floor": reward("paper" if correct else "code"),
    }


def roc_selection(case: dict[str, Any]) -> dict[str, Any]:
    inputs = case["inputs"]
    if "response_text" in inputs:
        return _penalties(inputs)
    rewards, penalties = inputs["rewards"], inputs["p_total"]
    params = case["params"]
    chosen, kept = [], []
    for name in dict.fromkeys(inputs["uid"]):
        members = [i for i, uid in enumerate(inputs["uid"]) if uid == name]
        own = [rewards[i] for i in members]
        indices = select.resample_indices(
            own,
            [penalties[i] for i in members],
            keep=params["down_sample_to_n"],
            mode="code",
            rng=np.random.default_rng(0),
            min_positive=params["min_non_zero"],
            min_negative=params["min_zero"],
        )
        chosen += [members[i] for i in indices]
        kept += [] if select.is_uniform(own) else members
    positives = [i for i, reward in enumerate(rewards) if reward > 0]
    negatives = len(rewards) - len(positives)
    first = select.draw_probabilities(np.array([penalties[i] for i in positives]))
    return {
        "code_selected_indices": sorted(chosen) or None,
        "code_reject_equal_kept": kept or None,
        "paper_positive_first_draw_prob": {
            str(i): p for i, p in zip(positives, first, strict=True)
        },
        "paper_negative_first_draw_prob": 1 / negatives if negatives else None,
        "n_pos": len(positives),
        "n_neg": negatives,
    }


def _penalties(inputs: dict[str, Any]) -> dict[str, Any]:
    calls, errors = inputs["n_tool_calls"], inputs["n_error"]
    p_err = select.error_ratio(["error"] * errors + ["ok"] * (calls - errors))
    tags = (
        inputs["response_text"].count("<answer>"),
        inputs["response_text"].count("</answer>"),
    )
    code = select.format_penalty(*tags, calls, mode="code")
    return {
        "p_err": p_err,
        "code_p_format": code,
        "code_p_total": p_err + code,
        "paper_p_err": p_err,
        "paper_p_format": select.format_penalty(*tags, calls, mode="paper"),
    }


def is_unfloored(case: dict[str, Any]) -> bool:
    """Some length is beyond L_max, or the penalty is scaled."""
    over = max(case["inputs"]["lengths"]) > case["params"]["L_max"]
    return over or not math.isclose(case["params"]["penalty_factor"], 1.0)
