"""What a body of SGLang's routes asks for, checked."""

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentic_jax.rollout.engine import SamplingParams

MAX_TOP_LOGPROBS = 20
_ALL = 1 << 30  # More than any vocabulary.
_GREEDY_BELOW = 1e-6  # SGLang takes such temperatures for 0.
_NEUTRAL = {  # Of what is not offered, the value that asks for nothing.
    "min_p": 0,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "repetition_penalty": 1,
    "min_new_tokens": 0,
    "min_tokens": 0,
    "n": 1,
    "spaces_between_special_tokens": True,
    "parallel_tool_calls": True,
    "separate_reasoning": True,
    "stream_reasoning": True,
    "tool_choice": "auto",
}
_SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "max_new_tokens",
    "stop",
    "stop_token_ids",
    "no_stop_trim",
    "skip_special_tokens",
    "ignore_eos",
    "sampling_seed",
)
_OF_EACH = (  # What may be one for all of a batch, or a list.
    "sampling_params",
    "return_logprob",
    "logprob_start_len",
    "top_logprobs_num",
    "return_text_in_logprobs",
)
_CHAT = (
    *("messages", "model", "tools", "rid", "user", "max_tokens"),
    *("max_completion_tokens", "temperature", "top_p", "top_k", "stop", "seed"),
    *("stop_token_ids", "no_stop_trim", "skip_special_tokens", "ignore_eos"),
)
Body = Mapping[str, Any]


@dataclass(frozen=True)
class Texts:
    """What a server knows of text.

    Attributes:
        encode: text to token ids, as a model reads it.
        render: messages and tools to the token ids of a chat prompt.
        decode: (token ids, whether to skip special tokens) to text.
        eos_token_ids: end a request unless it says ignore_eos.
        length: most tokens of prompt and response.
    """

    encode: Callable[[str], Sequence[int]]
    render: Callable[[Sequence[Body], Sequence[Body] | None], Sequence[int]]
    decode: Callable[[Sequence[int], bool], str]
    eos_token_ids: tuple[int, ...]
    length: int


@dataclass(frozen=True)
class Ask:
    """One request of a body.

    Attributes:
        rid: its id.
        token_ids: of the prompt.
        params: how to sample.
        trim_stop: whether the text, never the ids, ends before what stopped it.
        skip_special: whether the text leaves out special tokens.
        logprobs: whether sampled tokens come with log-probabilities.
        logprob_start: first prompt token to be scored; None scores none.
        top_logprobs: most likely alternatives to list at each place.
        token_texts: whether each scored token comes with its text.
    """

    rid: str
    token_ids: tuple[int, ...]
    params: SamplingParams
    trim_stop: bool
    skip_special: bool
    logprobs: bool = False
    logprob_start: int | None = None
    top_logprobs: int = 0
    token_texts: bool = False

    @property
    def needs_scores(self) -> bool:
        """Whether more is asked for than sampling brings."""
        return self.logprob_start is not None or self.top_logprobs > 0


def read_generate(body: Any, texts: Texts) -> tuple[list[Ask], bool]:
    """The requests in a body of /generate, and whether they came as a batch.

    Raises:
        ValueError: something is missing, malformed or not offered; the message says
            what. Nothing that is asked for is silently left out.
    """
    if not isinstance(body, Mapping):
        raise ValueError(f"the body is {_kind(body)}; wanted a JSON object")
    known = ("rid", "input_ids", "text", *_OF_EACH)
    _refuse_unknown(body, known, where="/generate")
    ids, text = body.get("input_ids"), body.get("text")
    if (ids is None) == (text is None):
        raise ValueError("give one of input_ids and text")
    if ids is None:
        batch = isinstance(text, list)
        prompts = [texts.encode(_text(t, "text")) for t in (text if batch else [text])]
    else:
        batch = isinstance(ids, list) and bool(ids) and isinstance(ids[0], list)
        prompts = [_ids(p, "input_ids") for p in (ids if batch else [ids])]
    if not prompts:
        raise ValueError("the batch is empty")
    asks = []
    for i, prompt in enumerate(prompts):
        one = {k: _of_batch(body, k, i, len(prompts), batch) for k in _OF_EACH}
        rid = _of_batch(body, "rid", i, len(prompts), batch)
        asks.append(_ask(one, rid, prompt, texts))
    rids = [ask.rid for ask in asks]
    if len(set(rids)) < len(rids):
        raise ValueError("two requests of the batch have the same rid")
    return asks, batch


def read_chat(body: Any, texts: Texts) -> Ask:
    """The request in a body of /v1/chat/completions.

    Raises:
        ValueError: as read_generate.
    """
    if not isinstance(body, Mapping):
        raise ValueError(f"the body is {_kind(body)}; wanted a JSON object")
    if body.get("stream"):
        raise ValueError("stream is true; answers come whole: leave it out")
    _refuse_unknown(body, _CHAT, where="/v1/chat/completions")
    messages, tools = body.get("messages"), body.get("tools")
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages is no list of messages, or an empty one")
    for message in messages:
        if not isinstance(message, Mapping) or "role" not in message:
            raise ValueError(f"message {message!r:.100} has no role")
        if not isinstance(message.get("content", ""), str | None):
            raise ValueError("a message's content is no text; only text is read")
    if tools is not None and not isinstance(tools, list):
        raise ValueError(f"tools is {_kind(tools)}; wanted a list")
    prompt = texts.render(messages, tools or None)
    most = body.get("max_completion_tokens", body.get("max_tokens"))
    sampling = {key: body[key] for key in _SAMPLING if key in body}
    sampling |= {"max_new_tokens": most, "sampling_seed": body.get("seed")}
    return _ask({"sampling_params": sampling}, body.get("rid"), prompt, texts)


def read_fields(body: Any, fields: Mapping[str, tuple[type, Any]]) -> dict[str, Any]:
    """The fields of a body that has no others.

    Args:
        body: parsed JSON.
        fields: name to type and default.

    Raises:
        ValueError: no object, a field of another type, or one that is not known.
    """
    if not isinstance(body, Mapping):
        raise ValueError(f"the body is {_kind(body)}; wanted a JSON object")
    _refuse_unknown(body, tuple(fields), where="this route")
    return {key: _value(body, key, *known) for key, known in fields.items()}


def _ask(one: Body, rid: Any, prompt: Sequence[int], texts: Texts) -> Ask:
    """The request of one body, or of one place of a batch."""
    sampling = one.get("sampling_params")
    sampling = {} if sampling is None else sampling
    if not isinstance(sampling, Mapping):
        raise ValueError(f"sampling_params is {_kind(sampling)}; wanted an object")
    _refuse_unknown(sampling, _SAMPLING, where="sampling_params")
    logprobs = _value(one, "return_logprob", bool, False)
    start = _value(one, "logprob_start_len", int, -1)
    top = _value(one, "top_logprobs_num", int, 0)
    if len(prompt) >= texts.length:
        raise ValueError(
            f"the prompt has {len(prompt)} tokens; with at least one to sample, "
            f"{texts.length} fit"
        )
    if not -1 <= start < max(len(prompt), 1):
        raise ValueError(f"logprob_start_len is {start} of {len(prompt)} prompt tokens")
    if not 0 <= top <= MAX_TOP_LOGPROBS:
        raise ValueError(f"top_logprobs_num is {top}; wanted 0 to {MAX_TOP_LOGPROBS}")
    return Ask(
        rid=secrets.token_hex(16) if rid is None else _text(rid, "rid"),
        token_ids=tuple(prompt),
        params=_params(sampling, len(prompt), texts),
        trim_stop=not _value(sampling, "no_stop_trim", bool, False),
        skip_special=_value(sampling, "skip_special_tokens", bool, True),
        logprobs=logprobs,
        logprob_start=start if logprobs and start >= 0 else None,
        top_logprobs=top if logprobs else 0,
        token_texts=_value(one, "return_text_in_logprobs", bool, False),
    )


def _params(sampling: Body, size: int, texts: Texts) -> SamplingParams:
    """SamplingParams of SGLang's sampling_params, for a prompt of `size` tokens."""
    stop = sampling.get("stop") or []
    strings = [stop] if isinstance(stop, str) else stop
    if not isinstance(strings, list) or not all(isinstance(s, str) for s in strings):
        raise ValueError(f"stop is {stop!r:.100}; wanted text or a list of texts")
    ids = (*_ids(sampling.get("stop_token_ids") or [], "stop_token_ids"),)
    if _value(sampling, "ignore_eos", bool, False):
        ids = ()  # SGLang then takes no notice of stop_token_ids either.
    else:
        ids = tuple(dict.fromkeys((*ids, *texts.eos_token_ids)))
    temperature = _value(sampling, "temperature", float, 1.0)
    if not math.isfinite(temperature):
        raise ValueError(f"temperature is {temperature}; wanted a finite number")
    top_k = _value(sampling, "top_k", int, -1)
    seed = _value(sampling, "sampling_seed", int, None)
    most = texts.length - size if "max_new_tokens" in sampling else 128
    return SamplingParams(
        max_tokens=_value(sampling, "max_new_tokens", int, most),
        temperature=0.0 if 0 <= temperature < _GREEDY_BELOW else temperature,
        top_p=_value(sampling, "top_p", float, 1.0),
        top_k=0 if top_k == -1 else min(top_k, _ALL),
        stop_token_ids=ids,
        stop_strings=tuple(strings),
        seed=secrets.randbits(63) if seed is None else seed,
    )


def _refuse_unknown(body: Body, known: Sequence[str], *, where: str) -> None:
    for key, value in body.items():
        neutral = value is None or value is False or value == _NEUTRAL.get(key, [])
        if key not in known and not neutral:
            raise ValueError(f"{key} is not offered by {where} here; leave it out")


def _of_batch(body: Body, key: str, i: int, size: int, batch: bool) -> Any:
    """A field's value for request i: its own, or the one for all."""
    value = body.get(key)
    if not isinstance(value, list):
        if batch and key == "rid" and value is not None:
            raise ValueError("rid of a batch is a list, one id for each request")
        return value
    if not batch or len(value) != size:
        raise ValueError(f"{key} lists {len(value)} values for {size} requests")
    return value[i]


def _value(body: Body, key: str, kind: type, default: Any) -> Any:
    value = body.get(key)
    if value is None:
        return default
    wanted = (int, float) if kind is float else kind
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{key} is {value!r:.100}; wanted {kind.__name__}")
    return kind(value)


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{key} is {value!r:.100}; wanted text")
    return value


def _ids(value: Any, key: str) -> list[int]:
    if not isinstance(value, list) or any(
        type(token_id) is not int for token_id in value
    ):
        raise ValueError(f"{key} is no list of integers")
    if any(abs(token_id) >= 1 << 31 for token_id in value):
        raise ValueError(f"{key} has a number beyond 31 bits")
    return value


def _kind(value: Any) -> str:
    return f"of type {type(value).__name__}"
