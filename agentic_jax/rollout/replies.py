"""How SGLang's routes write their answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentic_jax.rollout.engine import Completion
from agentic_jax.rollout.wire import Ask

Decode = Callable[[Sequence[int], bool], str]  # Token ids, whether to skip specials.


@dataclass(frozen=True)
class Scores:
    """Log-probabilities of N tokens, of a prompt or sampled.

    Attributes:
        logprobs: [N] float32 of each token given those before it.
        top_logprobs: [N, K] float32 of the K most likely tokens there, falling.
        top_ids: [N, K] int32 these tokens.
    """

    logprobs: np.ndarray
    top_logprobs: np.ndarray
    top_ids: np.ndarray


def generate_answer(
    ask: Ask,
    done: Completion,
    *,
    decode: Decode,
    weight_version: str,
    seconds: float,
    prompt_scores: Scores | None = None,
    sampled_scores: Scores | None = None,
) -> dict[str, Any]:
    """What /generate answers to one request.

    Args:
        ask: what was asked.
        done: what was sampled.
        decode: as of Texts.
        weight_version: label of the weights that sampled it.
        seconds: from the request's arrival.
        prompt_scores: of the whole prompt, at temperature 1; None if not asked for.
        sampled_scores: of the sampled tokens, at the request's temperature; likewise.
    """
    reason, text = ending(ask, done, decode)
    meta = {
        "id": ask.rid,
        "finish_reason": reason,
        "prompt_tokens": len(ask.token_ids),
        "weight_version": weight_version,
        "completion_tokens": len(done.token_ids),
        "cached_tokens": done.cached_tokens,
        "e2e_latency": seconds,
    }

    def entry(logprob: float | None, token_id: int) -> list:
        token = decode([int(token_id)], False) if ask.token_texts else None
        return [None if logprob is None else float(logprob), int(token_id), token]

    def entries(logprobs: Sequence, token_ids: Sequence) -> list:
        return [entry(*pair) for pair in zip(logprobs, token_ids, strict=True)]

    def tops(scores: Scores) -> list:
        k = ask.top_logprobs
        pairs = zip(scores.top_logprobs[:, :k], scores.top_ids[:, :k], strict=True)
        return [entries(*pair) for pair in pairs]

    if ask.logprobs:
        start = ask.logprob_start
        inputs, input_tops = [], []
        if start is not None:  # Its first token counts as given.
            logprobs = prompt_scores.logprobs[start + 1 :]
            inputs = entries([None, *logprobs], ask.token_ids[start:])
            input_tops = [None, *tops(prompt_scores)[start + 1 :]]
        meta["input_token_logprobs"] = inputs
        meta["output_token_logprobs"] = entries(done.logprobs, done.token_ids)
        meta["output_token_logprobs_length"] = len(done.token_ids)
        if ask.top_logprobs:
            meta["input_top_logprobs"] = input_tops
            meta["output_top_logprobs"] = tops(sampled_scores)
    return {"text": text, "output_ids": done.token_ids.tolist(), "meta_info": meta}


def chat_answer(
    ask: Ask,
    done: Completion,
    *,
    decode: Decode,
    weight_version: str,
    model: str,
    created: int,
) -> dict[str, Any]:
    """What /v1/chat/completions answers; calls stay in the text, as sampled."""
    reason, text = ending(ask, done, decode)
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text, "tool_calls": None},
        "logprobs": None,
        "finish_reason": reason["type"],
        "matched_stop": reason.get("matched"),
    }
    sizes = len(ask.token_ids), len(done.token_ids)
    return {
        "id": ask.rid,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [choice],
        "usage": {
            "prompt_tokens": sizes[0],
            "completion_tokens": sizes[1],
            "total_tokens": sum(sizes),
            "prompt_tokens_details": {"cached_tokens": done.cached_tokens},
        },
        "metadata": {"weight_version": weight_version},
    }


def ending(ask: Ask, done: Completion, decode: Decode) -> tuple[dict[str, Any], str]:
    """SGLang's finish_reason, and the text of what was sampled."""
    ids = done.token_ids.tolist()
    if done.stop == "abort":
        reason = {"type": "abort", "message": "Aborted by request"}
    elif done.stop == "length":
        reason = {"type": "length", "length": len(ids)}
    elif ids[-1] in ask.params.stop_token_ids:
        reason = {"type": "stop", "matched": ids[-1]}
        return reason, decode(ids[:-1] if ask.trim_stop else ids, ask.skip_special)
    else:
        whole = decode(ids, False)
        found = [(whole.find(s), s) for s in ask.params.stop_strings if s in whole]
        matched = min(found, default=(0, ask.params.stop_strings[0]))[1]
        text = decode(ids, ask.skip_special)
        cut = text.find(matched) if ask.trim_stop else -1
        return {"type": "stop", "matched": matched}, text[:cut] if cut >= 0 else text
    return reason, decode(ids, ask.skip_special)
