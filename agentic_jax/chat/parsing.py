"""Finds the tool calls in the text of one sampled turn."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agentic_jax.trajectory import ToolCall

Span = tuple[int, int]  # Characters of a text, from the first to before the second.
# strict=False takes raw newlines inside strings: models write code that way.
_DECODER = json.JSONDecoder(strict=False)
_TAGGED = {"search": "query", "python": "code"}


@dataclass(frozen=True)
class Parsed:
    """The calls of one turn, in the order written; malformed ones are among them.

    Attributes:
        calls: that were found.
        spans: of each call with its tags, in the text.
    """

    calls: tuple[ToolCall, ...]
    spans: tuple[Span, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """What was wrong with each malformed call, in words for the model."""
        return tuple(call.problem for call in self.calls if call.problem)


def parse_calls(text: str, *, format: str) -> Parsed:
    """Every finished call in the text, none of which has been run or looked up.

    A malformed call is a ToolCall with a problem, so that the model reads what was
    wrong. A call without its closing tag was cut off and is no call. What stands
    between <think> and </think> is thinking: calls in it are not executed, and
    neither is anything after a <think> that never closes.

    Args:
        text: decoded tokens of one turn, without the token that ended it.
        format: a key of PARSERS.

    Raises:
        ValueError: unknown format.
    """
    if format not in PARSERS:
        raise ValueError(f"unknown call format {format!r}; known: {', '.join(PARSERS)}")
    found = list(PARSERS[format](text))
    return Parsed(tuple(call for call, _ in found), tuple(span for _, span in found))


def hermes_calls(text: str) -> Iterator[tuple[ToolCall, Span]]:
    """<tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes and Qwen."""
    position = 0
    while start := _next_tag(text, position, re.compile("<tool_call>")):
        value, end, problem = _decode(text, start.end())
        close = text.find("</tool_call>", end)  # Not inside a well-formed string.
        if close < 0:
            return
        if not problem and text[end:close].strip():
            problem = "text after the JSON object, before </tool_call>"
        position = close + len("</tool_call>")
        call = _malformed(problem) if problem else _checked(value, "arguments")
        yield call, (start.start(), position)


def llama3_calls(text: str) -> Iterator[tuple[ToolCall, Span]]:
    """{"name": ..., "parameters": {...}} as the whole turn, several joined by ";"."""
    whole = 0, len(text)
    text = re.sub(r"<think>.*?(</think>|\Z)", "", text, flags=re.DOTALL)
    text = text.strip().removeprefix("<|python_tag|>").strip()
    if not re.match(r'\{\s*"name"', text):
        return
    position = 0
    while position < len(text):
        value, position, problem = _decode(text, position)
        rest = text[position:].lstrip()
        if not problem and rest and not rest.startswith(";"):
            problem = "text after the JSON object"
        call = _malformed(problem) if problem else _checked(value, "parameters")
        yield call, whole
        if problem:
            return
        position = len(text) - len(rest.removeprefix(";").lstrip())


def tagged_search_calls(text: str) -> Iterator[tuple[ToolCall, Span]]:
    """<search>query</search> and <python>code</python>, as search agents write them."""
    opening = re.compile(f"<({'|'.join(_TAGGED)})>")
    position = 0
    while start := _next_tag(text, position, opening):
        name, close = start[1], text.find(f"</{start[1]}>", start.end())
        if close < 0:
            return
        body = text[start.end() : close].strip()
        position = close + len(f"</{name}>")
        known = ToolCall(name, {_TAGGED[name]: body})
        call = known if body else _malformed(f"<{name}> is empty", name)
        yield call, (start.start(), position)


PARSERS = {
    "hermes": hermes_calls,
    "llama3": llama3_calls,
    "tagged_search": tagged_search_calls,
}


def _next_tag(
    text: str, position: int, opening: re.Pattern[str]
) -> re.Match[str] | None:
    """The next opening tag from `position` on that is not inside thinking."""
    while start := opening.search(text, position):
        think = text.find("<think>", position, start.start())
        if think < 0:
            return start
        position = text.find("</think>", think)
        if position < 0:
            return None
    return None


def _decode(text: str, position: int) -> tuple[Any, int, str]:
    """The JSON value at `position`, where it ends, and what is wrong with it."""
    position += len(text[position:]) - len(text[position:].lstrip())
    try:
        value, end = _DECODER.raw_decode(text, position)
    except json.JSONDecodeError as error:
        where = error.pos - position
        return None, position, f"not JSON ({error.msg} at character {where})"
    except (ValueError, RecursionError):  # An integer too long, or too deep a nesting.
        return None, position, "JSON that is too deep or holds too long a number"
    return value, end, ""


def _checked(value: Any, arguments: str) -> ToolCall:
    """The call that a decoded JSON value stands for, or what it lacks."""
    if not isinstance(value, dict):
        return _malformed("it must be a JSON object")
    name, given = value.get("name"), value.get(arguments)
    if not isinstance(name, str) or not name:
        return _malformed('it needs a "name", the tool to call')
    if not isinstance(given, dict):
        return _malformed(f'it needs "{arguments}", a JSON object', name)
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return _malformed("it holds half of a surrogate pair")
    return ToolCall(name, given)


def _malformed(problem: str, name: str = "") -> ToolCall:
    """A call that tells the model what was wrong with it."""
    return ToolCall(name, None, f"Malformed call: {problem}.")
