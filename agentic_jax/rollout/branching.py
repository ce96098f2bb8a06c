"""When a rollout branches: the pure decisions of ARPO and AEPO.

Entropies are those of step_entropy: dH is the entropy after a tool call less the one at
the root of the rollout.
"""

import math

import numpy as np


def step_entropy(
    top_logprobs: np.ndarray, *, vocab_size: int, max_tokens: int = 20
) -> float:
    """Entropy of the first tokens of a step, from the engine's likeliest tokens.

        sum over t < max_tokens, top k of -p log p, divided by log V

    Args:
        top_logprobs: [n, k] nats of the k likeliest tokens at each position; k = 10.
        vocab_size: V, at least 2.
        max_tokens: positions beyond it are ignored.

    Returns:
        A sum over tokens, as the released code has it: divide by min(n, max_tokens)
        for the mean. 0 for no token.

    Source: released code of ARPO (arXiv:2507.19849).
    """
    logprobs = np.asarray(top_logprobs, float)[:max_tokens]
    logprobs = np.where(np.isneginf(logprobs), 0.0, logprobs)  # 0 log 0 = 1 log 1.
    return float(-(np.exp(logprobs) * logprobs).sum() / math.log(vocab_size))


def arpo_branch_score(
    uniform: float, entropy_change: float, *, entropy_weight: float
) -> float:
    """Branch if it is at most the branch probability: clip(U - w dH, 0, 1).

    Args:
        uniform: U, a draw from [0, 1).
        entropy_change: dH.
        entropy_weight: w; 0.2 in the code.

    Source: released code of ARPO (arXiv:2507.19849). The paper instead branches where
    alpha + beta dH exceeds tau.
    """
    return min(max(uniform - entropy_weight * entropy_change, 0.0), 1.0)


def arpo_branches(score: float, *, branch_probability: float) -> bool:
    """Whether ARPO branches: score <= branch_probability, 0.5 in the code."""
    return score <= branch_probability


def aepo_branch_score(
    uniform: float,
    entropy_change: float,
    num_consecutive: int,
    *,
    entropy_weight: float,
) -> float:
    """Branch if it is at least the threshold: clip((U + w dH)(1 - 0.05 l), 0, 1).

    Args:
        uniform: U, a draw from [0, 1).
        entropy_change: dH.
        num_consecutive: l, branches in a row on this path; from 20 on the score is 0.
        entropy_weight: w, gamma of the paper; 0.2 in the code.

    Source: AEPO (arXiv:2510.14545) and a public copy of its code.
    """
    penalty = 1.0 - 0.05 * num_consecutive
    return min(max((uniform + entropy_weight * entropy_change) * penalty, 0.0), 1.0)


def aepo_branches(score: float, *, branch_probability: float) -> bool:
    """Whether AEPO branches: score >= branch_probability, the reverse of ARPO's."""
    return score >= branch_probability


def root_rollouts(
    budget: int, root_entropy: float, tool_entropy: float, *, beta: float
) -> int:
    """How many of the budget start at the root; the rest may branch.

        clamp(int(k sigmoid(beta (H_root - mean H_tool))) + 1, 1, k)

    Args:
        budget: k, rollouts of the prompt, at least 1.
        root_entropy: H_root of a pilot rollout.
        tool_entropy: mean entropy after its tool calls.
        beta: sharpness; 0.5 in the code.

    Returns:
        From 1 to budget. The integer part follows the code; root_share is exact.

    Source: entropy pre-monitoring, AEPO (arXiv:2510.14545), eq. 5.
    """
    share = root_share(budget, root_entropy, tool_entropy, beta=beta)
    return min(max(int(share) + 1, 1), budget)


def root_share(
    budget: int, root_entropy: float, tool_entropy: float, *, beta: float
) -> float:
    """k sigmoid(beta (H_root - mean H_tool)), not rounded; args as root_rollouts."""
    return budget / (1.0 + math.exp(-beta * (root_entropy - tool_entropy)))
