"""Turns messages and tool results into token ids, and sampled ids into calls."""

import bisect
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
import numpy as np
from transformers import PreTrainedTokenizerBase

from agentic_jax.chat.parsing import PARSERS, Parsed, Span, parse_calls
from agentic_jax.chat.tokenizer import TEMPLATES, TOOL_TOKENS
from agentic_jax.tools.base import Tool
from agentic_jax.trajectory import ToolResult, Turn

_QUESTION = {"role": "user", "content": "What is 2+2?"}
_PROBE = "PROBE-7f3a"  # Stands for a sampled turn; occurs in no template.


@dataclass(frozen=True)
class Chat:
    """The conversation format of one model; checked when it is made.

    Ids from an engine are final: a Chat decodes them and never encodes them again. What
    it adds after a turn is the template's own text, tokenised alone. That text starts
    at a special token, so the ids are those of the whole conversation.

    Attributes:
        tokenizer: a Hugging Face tokenizer with a chat template.
        tools: what the policy may call.
        format: how it writes calls, a key of PARSERS.
        stop_strings: text that ends a turn besides the end-of-turn token, such as
            "</tool_call>" for one call a turn.
        list_tools: whether the prompt describes the tools. False is for a small policy
            that was trained to know them, and needs the room.

    Raises:
        ValueError: the template cannot hold a tool conversation; see
            check_prefix_stable.
    """

    tokenizer: PreTrainedTokenizerBase
    tools: tuple[Tool, ...] = ()
    format: str = "hermes"
    stop_strings: tuple[str, ...] = ()
    list_tools: bool = True

    def __post_init__(self) -> None:
        """Checks the format and the template."""
        if self.format not in PARSERS:
            raise ValueError(f"format is {self.format!r}; known: {', '.join(PARSERS)}")
        check_prefix_stable(self)

    def render_prompt(self, messages: Sequence[Mapping[str, Any]]) -> np.ndarray:
        """[n] int32 ids of the messages and the generation prompt."""
        return self.encode(self.render_text(messages, generation=True))

    def render_results(
        self, turn_token_ids: np.ndarray, results: Sequence[ToolResult]
    ) -> np.ndarray:
        """What follows a sampled turn, up to the next generation prompt.

        If the turn did not end with the end-of-turn token (a stop string ended it), the
        token is added here, where it is not trained. Special tokens and tool tags that
        a tool printed are broken by a space, so that no tool can forge a turn.

        Args:
            turn_token_ids: [n] int32 as sampled; only the last one is looked at.
            results: of this turn's calls, in order; at least one.

        Returns:
            [m] int32, to be appended to the sampled ids with mask False.

        Raises:
            ValueError: no results.
        """
        if not results:
            raise ValueError(
                "no results to render: a turn without calls ends an episode"
            )
        answers = [{"role": "tool", "content": self.plain(r.text)} for r in results]
        turn = {"role": "assistant", "content": _PROBE}
        ids = self.encode(_after(_PROBE, self.render_text([_QUESTION, turn, *answers])))
        closed = len(turn_token_ids) > 0 and turn_token_ids[-1] == self.end_of_turn_id
        return ids[1:] if closed else ids

    def parse(self, text: str) -> Parsed:
        """The calls in one turn's decoded text; see parsing.parse_calls."""
        opened = len(self._thinking)
        found = parse_calls(self._thinking + self._unclosed(text), format=self.format)
        spans = tuple((max(a - opened, 0), b - opened) for a, b in found.spans)
        return Parsed(found.calls, spans)

    def token_spans(
        self, token_ids: np.ndarray, spans: Sequence[Span]
    ) -> tuple[tuple[int, int], ...]:
        """The tokens [start, end) that touch each span of a turn's decoded text."""

        def size(count: int) -> int:
            return len(self.decode(token_ids[:count]))

        counts = range(len(token_ids) + 1)
        return tuple(
            (
                bisect.bisect_right(counts, start, key=size) - 1,
                bisect.bisect_left(counts, end, key=size),
            )
            for start, end in spans
        )

    def turn_text(self, turn: Turn) -> str:
        """What the policy wrote in a turn, as the content of an assistant message."""
        return self._thinking + self._unclosed(self.decode(turn.token_ids))

    def opens_call(self, text: str) -> bool:
        """Whether the text ends within a Hermes call, which then was not run."""
        opening, closing = TOOL_TOKENS[:2]
        return text.count(opening) > text.count(closing)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of the ids, special tokens kept; broken UTF-8 becomes U+FFFD."""
        return self.tokenizer.decode(
            [int(token_id) for token_id in token_ids],
            skip_special_tokens=False,
            clean_up_tokenization_spaces=False,
        )

    def encode(self, text: str) -> np.ndarray:
        """[n] int32 ids of text that we wrote; no token is put before or after it."""
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return np.array(ids, dtype=np.int32)

    def render_text(
        self, messages: Sequence[Mapping[str, Any]], *, generation: bool = True
    ) -> str:
        """What the template makes of the messages, before it is tokenised.

        Args:
            messages: {"role", "content"}; assistants may have "tool_calls".
            generation: whether the prompt for the next assistant turn follows.

        Raises:
            ValueError: the template refuses the messages.
        """
        listed = self.tools if self.list_tools else ()
        try:
            return self.tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tools=[tool.schema for tool in listed] or None,
                add_generation_prompt=generation,
                tokenize=False,
            )
        except jinja2.TemplateError as error:
            roles = [message["role"] for message in messages]
            raise ValueError(
                f"{self.label} refuses the roles {roles}: {error}"
            ) from error

    @property
    def label(self) -> str:
        """The tokenizer's name, for messages."""
        tokenizer = self.tokenizer
        return (
            f"the chat template of {tokenizer.name_or_path or type(tokenizer).__name__}"
        )

    @functools.cached_property
    def end_of_turn_id(self) -> int:
        """The special token that the template puts right after an assistant's text."""
        turn = {"role": "assistant", "content": _PROBE}
        closing = _after(_PROBE, self.render_text([_QUESTION, turn], generation=False))
        ids = self.encode(closing)
        if len(ids) == 0 or int(ids[0]) not in self.tokenizer.added_tokens_decoder:
            raise ValueError(
                f"{self.label} has no end-of-turn token: {closing!r} follows a turn"
                f"; set chat_template to one of {', '.join(TEMPLATES)}"
            )
        return int(ids[0])

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Ids that end a turn: the template's end of turn and the tokenizer's EOS."""
        eos = self.tokenizer.eos_token_id
        both = (self.end_of_turn_id, eos)
        return both if eos not in (None, self.end_of_turn_id) else both[:1]

    def _unclosed(self, text: str) -> str:
        """The text without the token that ended its turn."""
        for token_id in self.stop_token_ids:
            text = text.removesuffix(self.decode([token_id]))
        return text

    @functools.cached_property
    def _thinking(self) -> str:
        """The <think> that the generation prompt opened, or ''."""
        prompt = self.render_text([_QUESTION])
        return "<think>\n" if prompt.rstrip().endswith("<think>") else ""

    @functools.cached_property
    def _reserved(self) -> re.Pattern[str]:
        """Matches the tokens that a tool must not be able to write."""
        added = self.tokenizer.added_tokens_decoder.values()
        tokens = {token.content for token in added if token.special} | set(TOOL_TOKENS)
        longest_first = sorted(tokens, key=len, reverse=True)
        return re.compile("|".join(re.escape(token) for token in longest_first))

    def plain(self, text: str) -> str:
        """Tool output as text that encodes to no special token."""
        text = text.encode("utf-8", "replace").decode()
        return self._reserved.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)


def check_prefix_stable(chat: Chat) -> None:
    """Raises unless the template can hold a conversation that only ever grows.

    An episode is one question, then assistant turns and tool results. Rendering it with
    one more turn must repeat the shorter rendering, or what a policy is trained on is
    not what it would see when served. Templates that drop the thinking of turns before
    the last *question* (Qwen3's) pass, since an episode has one question; those that
    drop the thinking of every earlier turn do not.

    Raises:
        ValueError: there is no chat template or generation prompt, no end-of-turn
            token, or the template drops the tools, calls or results, or rewrites
            earlier turns. The message says which, and what to do.
    """
    fix = f"; set chat_template to one that does not, such as {', '.join(TEMPLATES)}"
    if not chat.tokenizer.chat_template:
        raise ValueError(
            f"{chat.label} does not exist; set chat_template to one of "
            f"{', '.join(TEMPLATES)} (agentic_jax.chat.tokenizer.TEMPLATES)"
        )
    prompt = chat.render_text([_QUESTION])
    if len(prompt) <= len(chat.render_text([_QUESTION], generation=False)):
        raise ValueError(f"{chat.label} ignores add_generation_prompt{fix}")
    if _QUESTION["content"] not in prompt:
        raise ValueError(f"{chat.label} drops the user's message{fix}")
    if chat.end_of_turn_id is None or not chat.tools:
        return
    if chat.list_tools and not all(tool.name in prompt for tool in chat.tools):
        raise ValueError(
            f"{chat.label} drops the list of tools{fix}, or set list_tools=False"
        )
    _check_calls_and_results(chat, fix)
    _check_growth(chat, prompt, fix)


def _check_calls_and_results(chat: Chat, fix: str) -> None:
    """Raises if a call or a result does not reach the rendered text exactly once."""
    function = {"name": "probe_tool", "arguments": {"probe_argument": _PROBE}}
    call = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": function}],
    }
    results = [{"role": "tool", "content": text} for text in ("RESULT-A", "RESULT-B")]
    text = chat.render_text([_QUESTION, call, *results])
    for what, words in {
        "an assistant's tool_calls": ("probe_tool", "probe_argument", _PROBE),
        "tool results": ("RESULT-A", "RESULT-B"),
    }.items():
        if any(text.count(word) != 1 for word in words):
            raise ValueError(f"{chat.label} drops or repeats {what}{fix}")


def _check_growth(chat: Chat, prompt: str, fix: str) -> None:
    """Raises unless each round of thinking, call and result only appends."""
    opened = chat._thinking
    thought = f"<think>\nPLAN-51c8\n</think>\n\n{_PROBE}"
    messages: list[Mapping[str, Any]] = [_QUESTION]
    text = prompt
    for _ in range(2):
        messages += [{"role": "assistant", "content": thought}]
        messages += [{"role": "tool", "content": "4"}]
        longer = chat.render_text(messages)
        if not longer.startswith(text + thought.removeprefix(opened)):
            raise ValueError(
                f"{chat.label} rewrites earlier turns, for instance by dropping their"
                f" thinking, so prompts of later turns do not extend earlier ones{fix}"
            )
        text = longer


def _after(probe: str, text: str) -> str:
    """What follows the first occurrence of the probe."""
    _, found, rest = text.partition(probe)
    if not found:
        raise ValueError(f"the chat template drops an assistant's content: {text!r}")
    return rest
