"""The model behind a server, read from a Hugging Face directory."""

import dataclasses
import importlib.metadata
import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
from transformers import PreTrainedTokenizerBase

from agentic_jax.chat.tokenizer import load_tokenizer
from agentic_jax.models import hf_weights
from agentic_jax.models.config import ModelConfig, to_hf
from agentic_jax.models.scoring import Scorer
from agentic_jax.rollout.jax_engine import JaxEngine
from agentic_jax.rollout.wire import Body, Texts

_NOT_OF_THE_WEIGHTS = {"bos_token_id", "eos_token_ids", "pad_token_id"}


@dataclass(frozen=True)
class Served:
    """What a server needs besides its engine.

    Attributes:
        path: of the directory that the model was read from.
        load: reads another directory of the same model; raises ValueError or OSError.
        score: Scorer.score.
        texts: of its tokenizer.
        info: what /model_info and /server_info say besides.
    """

    path: str
    load: Callable[[str], Any]
    score: Callable[..., tuple]
    texts: Texts
    info: Mapping[str, Any]


def open_model(
    path: str | os.PathLike,
    *,
    rows: int,
    length: int,
    dtype: str,
    deterministic: bool,
) -> tuple[JaxEngine, Served, Any]:
    """An engine, what else a server needs, and the parameters.

    Args:
        path: of a Hugging Face directory with a tokenizer.
        rows: sequences held at a time.
        length: most tokens of a sequence, prompt and response.
        dtype: of the parameters, the matrix products and the cache.
        deterministic: see JaxEngine.

    Raises:
        FileNotFoundError, ValueError: what is missing or malformed, by name; or length
            is beyond what the model was made for.
    """
    config = _run_in(dtype, hf_weights.read_config(path))
    if length > config.max_positions:
        raise ValueError(
            f"length {length} is beyond the {config.max_positions} positions of {path}"
        )
    tokenizer = load_tokenizer(path)
    eos = {*config.eos_token_ids, tokenizer.eos_token_id, *_generation_eos(path)}
    texts = tokenizer_texts(tokenizer, eos_token_ids=eos - {None}, length=length)
    params = hf_weights.load(path, config)
    engine = JaxEngine(
        params,
        config,
        decode=lambda ids: texts.decode(ids, False),
        rows=rows,
        length=length,
        deterministic=deterministic,
    )
    hf = to_hf(config)
    info = {
        "model_type": hf["model_type"],
        "architectures": hf["architectures"],
        "dtype": dtype,
        "deterministic": deterministic,
        "context_length": length,
        "max_running_requests": rows,
        "max_total_num_tokens": rows * length,
        "version": importlib.metadata.version("agentic_jax"),
    }
    served = Served(
        path=os.fspath(path),
        load=lambda other: load_like(config, other),
        score=Scorer(config, length=length).score,
        texts=texts,
        info=info,
    )
    return engine, served, params


def load_like(config: ModelConfig, path: str | os.PathLike) -> Any:
    """The parameters of a directory that holds the model of `config`.

    Raises:
        FileNotFoundError, ValueError: it does not; the message names the difference.
    """
    found = _run_in(config.dtype, hf_weights.read_config(path))
    for field in dataclasses.fields(config):
        ours, theirs = (getattr(c, field.name) for c in (config, found))
        if ours != theirs and field.name not in _NOT_OF_THE_WEIGHTS:
            raise ValueError(
                f"{path} is another model: its {field.name} is {theirs!r}, not {ours!r}"
            )
    return hf_weights.load(path, config)


def tokenizer_texts(
    tokenizer: PreTrainedTokenizerBase, *, eos_token_ids: set[int], length: int
) -> Texts:
    """Texts of a tokenizer that has a chat template."""

    def render(messages: Sequence[Body], tools: Sequence[Body] | None) -> list[int]:
        try:
            text = tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tools=tools,
                add_generation_prompt=True,
                tokenize=False,
            )
        except (jinja2.TemplateError, TypeError, AttributeError) as error:
            raise ValueError(f"the chat template refuses this: {error}") from error
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    def decode(token_ids: Sequence[int], skip_special: bool) -> str:
        return tokenizer.decode(
            [int(token_id) for token_id in token_ids],
            skip_special_tokens=skip_special,
            clean_up_tokenization_spaces=False,
        )

    return Texts(
        encode=lambda text: tokenizer(text)["input_ids"],
        render=render,
        decode=decode,
        eos_token_ids=tuple(sorted(eos_token_ids)),
        length=length,
    )


def _run_in(dtype: str, config: ModelConfig) -> ModelConfig:
    return dataclasses.replace(config, dtype=dtype, param_dtype=dtype)


def _generation_eos(path: str | os.PathLike) -> list[int]:
    """End-of-sequence ids of a generation_config.json, where there is one."""
    file = pathlib.Path(path) / "generation_config.json"
    if not file.is_file():
        return []
    eos = json.loads(file.read_text("utf-8")).get("eos_token_id")
    return eos if isinstance(eos, list) else [eos]
