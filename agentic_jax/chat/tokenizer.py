"""Makes and loads tokenizers that have a chat template."""

import pathlib
from collections.abc import Iterable

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TOOL_TOKENS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")

_LONG_TOOLS = """\
{{- '# Tools\\n\\nYou can call these functions:\\n<tools>\\n' }}
{%- for tool in tools %}{{- tool | tojson + '\\n' }}{%- endfor %}
{{- '</tools>\\n\\nTo call one, write a JSON object with its name and arguments:\\n' }}
{{- '<tool_call>\\n{"name": NAME, "arguments": {ARGUMENT: VALUE}}\\n</tool_call>' }}"""
_SHORT_TOOLS = """\
{{- 'Tools:' }}
{%- for tool in tools %}
{{- ' ' + tool.function.name + '(' }}
{{- tool.function.parameters.properties | join(', ') + ')' }}
{%- endfor %}"""
_MESSAGES = """\
{%- set system = messages[0].content if messages[0].role == 'system' else '' %}
{%- if system or tools %}
{{- '<|im_start|>system\\n' + system }}
{%- if system and tools %}{{- '\\n\\n' }}{%- endif %}
{%- if tools %}TOOLS{%- endif %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{%- if loop.first or loop.previtem.role != 'tool' %}
{{- '<|im_start|>user' }}
{%- endif %}
{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
{%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- elif not (loop.first and message.role == 'system') %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or () %}
{%- set function = call.function or call %}
{%- if message.content or not loop.first %}{{- '\\n' }}{%- endif %}
{{- '<tool_call>\\n{"name": ' + function.name | tojson + ', "arguments": ' }}
{%- set given = function.arguments %}
{{- given if given is string else given | tojson }}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

# ChatML with Hermes calls; consecutive tool results share one user turn, and no earlier
# turn is ever rewritten. "hermes" lists whole schemas, "hermes_short" only names.
TEMPLATES = {
    "hermes": _MESSAGES.replace("TOOLS", _LONG_TOOLS),
    "hermes_short": _MESSAGES.replace("TOOLS", _SHORT_TOOLS),
}


def train_tokenizer(
    texts: Iterable[str], *, vocab_size: int, template: str = "hermes_short"
) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with single digits and Hermes tool tags.

    decode(encode(x)) is x for any text that is valid Unicode. Merges may cross word
    borders, so a narrow corpus gives few, long tokens.

    Args:
        texts: what the merges are learned from; may be empty at the smallest size,
            which makes a plain byte tokenizer.
        vocab_size: most tokens, specials included, at least 263 (256 bytes and 7
            special and tool tokens). Fewer come out if the texts have few pairs.
        template: a key of TEMPLATES.

    Raises:
        ValueError: vocab_size is too small.
    """
    smallest = 256 + len(SPECIAL_TOKENS) + len(TOOL_TOKENS)
    if vocab_size < smallest:
        raise ValueError(f"vocab_size is {vocab_size}; bytes and tags need {smallest}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(TOOL_TOKENS),
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in TOOL_TOKENS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
        chat_template=TEMPLATES[template],
    )


def load_tokenizer(
    path: str | pathlib.Path, *, template: str | None = None
) -> PreTrainedTokenizerBase:
    """The tokenizer of a local model directory; nothing is downloaded.

    Args:
        path: directory with tokenizer files.
        template: a key of TEMPLATES that replaces the tokenizer's own chat template,
            for models whose template knows no tools; None keeps its own.

    Raises:
        FileNotFoundError: no such directory, or no tokenizer in it.
        ValueError: unreadable tokenizer, unknown template, or no chat template at all.
    """
    path = pathlib.Path(path)
    if template is not None and template not in TEMPLATES:
        raise ValueError(
            f"unknown template {template!r}; known: {', '.join(TEMPLATES)}"
        )
    if not path.is_dir():
        raise FileNotFoundError(
            f"{path} is not a directory; give a local Hugging Face model directory"
        )
    names = ("tokenizer.json", "tokenizer.model", "vocab.json")
    if not any((path / name).exists() for name in names):
        raise FileNotFoundError(f"{path} has no tokenizer ({', '.join(names)})")
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    except Exception as error:  # The tokenizers library raises bare Exception.
        raise ValueError(f"cannot read the tokenizer in {path}: {error}") from error
    if template is not None:
        tokenizer.chat_template = TEMPLATES[template]
    if not tokenizer.chat_template:
        raise ValueError(
            f"the tokenizer in {path} has no chat template; set template to one of: "
            f"{', '.join(TEMPLATES)}"
        )
    return tokenizer
