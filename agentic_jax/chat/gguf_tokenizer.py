"""Rebuilds the tokenizer and chat template that a GGUF file carries."""

from collections.abc import Mapping
from typing import Any

import jinja2.sandbox
from absl import logging
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from agentic_jax.chat.tokenizer import TEMPLATES

_CONTROL = 3  # llama.cpp's token type of special tokens.
_PROBES = (
    [{"role": "user", "content": "a"}],
    [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}],
    [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": " c\n"},
    ],
)


def build_tokenizer(meta: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    """The byte-level BPE tokenizer of a GGUF file, with tools in its chat template.

    A ChatML template is extended to Hermes tools, calls and results, and renders chats
    without tools as before. Another template is kept, with a warning.

    Text comes back exactly from its ids, except bytes that the vocabulary lacks: they
    are dropped, as by the original. SmolLM2 lacks six control characters and planes 4
    and up of Unicode, where no characters are assigned but tags and private ones.

    Args:
        meta: the file's metadata.

    Raises:
        ValueError: a kind of tokenizer that is not supported, or none.
    """
    kind = meta.get("tokenizer.ggml.model"), meta.get("tokenizer.ggml.pre", "default")
    if kind not in (("gpt2", "smollm"), ("gpt2", "gpt-2")):
        raise ValueError(
            f"unsupported GGUF tokenizer {kind[0]!r} with pre-tokenizer {kind[1]!r}; "
            "supported: gpt2 with smollm or gpt-2"
        )
    tokens = meta["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = (
        pre_tokenizers.Sequence([digits, byte_level])
        if kind[1] == "smollm"
        else byte_level
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [
        AddedToken(token, normalized=False, special=True)
        for token, type_ in zip(tokens, meta["tokenizer.ggml.token_type"], strict=True)
        if type_ == _CONTROL
    ]
    tokenizer.add_special_tokens(special)
    names = {
        f"{name}_token": tokens[meta[f"tokenizer.ggml.{key}_token_id"]]
        for name, key in (
            ("bos", "bos"),
            ("eos", "eos"),
            ("unk", "unknown"),
            ("pad", "padding"),
        )
        if f"tokenizer.ggml.{key}_token_id" in meta
    }
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        clean_up_tokenization_spaces=False,
        chat_template=with_tools(meta.get("tokenizer.chat_template")),
        **names,
    )


def with_tools(template: str | None) -> str | None:
    """A ChatML template extended to tools; another one, or None, as it is.

    The system message that the template puts before a chat without one is kept, and
    the tools are listed after it.
    """
    if template is None:
        return None
    start, end = "<|im_start|>system\n", "<|im_end|>\n"
    rendered = _render(template, _PROBES[0])
    extended = TEMPLATES["hermes"]
    if rendered.startswith(start):
        default = rendered.removeprefix(start).partition(end)[0]
        extended = (
            "{%- if messages[0].role != 'system' %}"
            "{%- set messages = [{'role': 'system', 'content': DEFAULT}] + messages %}"
            "{%- endif %}\n"
        ).replace("DEFAULT", repr(default)) + extended
    if any(_render(template, p) != _render(extended, p) for p in _PROBES):
        logging.warning("the chat template is not ChatML: it is kept, without tools")
        return template
    return extended


def _render(template: str, messages: list[dict[str, str]]) -> str:
    """As transformers renders, for templates that need none of its extensions."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(template).render(
        messages=messages, add_generation_prompt=True
    )
