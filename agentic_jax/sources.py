"""Where models and problems come from: the functions that `model` and `tasks` name."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from transformers import PreTrainedTokenizerBase

from agentic_jax.chat.tokenizer import load_tokenizer, train_tokenizer
from agentic_jax.config import bind
from agentic_jax.data import mixture
from agentic_jax.data.filters import FILTERS, keep_tasks
from agentic_jax.data.layouts import read_dataset
from agentic_jax.data.procedural import reasoning_gym
from agentic_jax.data.tasks import read_tasks
from agentic_jax.data.word_problems import typical_texts, word_problems
from agentic_jax.models import hf_weights
from agentic_jax.models.config import LoraConfig, ModelConfig
from agentic_jax.models.shapes import SHAPES
from agentic_jax.models.transformer import Transformer
from agentic_jax.trajectory import Task


@dataclass(frozen=True)
class Model:
    """Parameters, how they are run, and the tokenizer that goes with them.

    Attributes:
        params: of the Transformer, without adapters.
        config: of the model, without adapters.
        tokenizer: its own.
        lora: the adapters that are to be trained instead of params, or None.
    """

    params: Any
    config: ModelConfig
    tokenizer: PreTrainedTokenizerBase
    lora: LoraConfig | None = None


def from_directory(
    *,
    path: str,
    dtype: str,
    layer_loop: str,
    remat: str,
    attention: str = "dense",
    lora: Mapping[str, Any] | None = None,
) -> Model:
    """A local Hugging Face directory, as transformers or launch.convert writes it.

    Args:
        path: of the directory.
        dtype, layer_loop, remat, attention: how to run it; see ModelConfig.
        lora: see lora_config.

    Raises:
        FileNotFoundError, ValueError: what is missing or malformed, by name.
    """
    run = {"dtype": dtype, "layer_loop": layer_loop, "remat": remat}
    config = dataclasses.replace(
        hf_weights.read_config(path), attention=attention, **run
    )
    tokenizer = load_tokenizer(path)
    params = hf_weights.load(path, config)
    return Model(params, config, tokenizer, lora_config(lora))


def lora_config(spec: Mapping[str, Any] | None) -> LoraConfig | None:
    """The adapters that a model's `lora` entry asks for, None for none.

    Args:
        spec: {"rank": int, "alpha": float, "targets": names as PEFT has them}; see
            models.config.LoraConfig.

    Raises:
        ValueError: another key, or a value that LoraConfig refuses.
    """
    if spec is None:
        return None
    if set(spec) != {"rank", "alpha", "targets"}:
        raise ValueError(
            f"model.lora has {', '.join(spec)}; it takes rank, alpha and targets"
        )
    return LoraConfig(spec["rank"], spec["alpha"], tuple(spec["targets"]))


def from_shape(
    *, shape: str, dtype: str, layer_loop: str, remat: str, attention: str = "dense"
) -> Model:
    """A published model without its weights, which can be planned for and not run.

    Args:
        shape: of models.shapes.SHAPES.
        dtype, layer_loop, remat, attention: how to run it; see ModelConfig.

    Raises:
        ValueError: always.
    """
    raise ValueError(
        f"config.model names the shape {shape!r}, which has no weights: only `python "
        "-m launch.plan` takes it. Set model.name to 'directory' and give a path"
    )


def model_config(spec: Mapping[str, Any]) -> ModelConfig:
    """The decoder that a `model` entry describes; no weights are read or made for it.

    Raises:
        FileNotFoundError, ValueError: as the named function does, or an unknown shape.
    """
    model = bind(spec, MODELS)
    if model.func not in (from_directory, from_shape):
        return model().config  # Of the user's own, or small.
    run = {key: x for key, x in model.keywords.items() if key != "lora"}
    if model.func is from_directory:
        return dataclasses.replace(hf_weights.read_config(run.pop("path")), **run)
    shape = run.pop("shape")
    if shape not in SHAPES:
        raise ValueError(f"unknown shape {shape!r}; known: {', '.join(SHAPES)}")
    return dataclasses.replace(SHAPES[shape], **run)


def toy(
    *,
    width: int,
    num_layers: int,
    vocab_size: int,
    seed: int,
    lora: Mapping[str, Any] | None = None,
) -> Model:
    """A small Qwen3 with random weights and a tokenizer made for word problems.

    Args:
        width: a multiple of 32; heads have 32 dimensions, two of them per key head.
        num_layers: of the decoder.
        vocab_size: most tokens of the byte-level BPE tokenizer.
        seed: of the weights.
        lora: see lora_config.
    """
    tokenizer = train_tokenizer(typical_texts(600), vocab_size=vocab_size)
    config = ModelConfig(
        family="qwen3",
        vocab_size=len(tokenizer),
        width=width,
        num_layers=num_layers,
        num_heads=width // 32,
        num_kv_heads=max(width // 64, 1),
        head_dim=32,
        mlp_width=3 * width,
        tie_embeddings=True,
        qk_norm=True,
        rope_theta=100.0,  # Contexts are short, and copying digits needs their order.
        max_positions=1024,
        eos_token_ids=(tokenizer.eos_token_id,),
        pad_token_id=tokenizer.pad_token_id,
    )
    tokens = jnp.zeros((1, 1), jnp.int32)
    init = jax.jit(Transformer(config).init)
    params = init(jax.random.key(seed), tokens, tokens, tokens + 1)["params"]
    return Model(params, config, tokenizer, lora_config(lora))


def jsonl(
    *,
    path: str,
    fields: Mapping[str, str],
    domain: str = "math",
    system: str = "",
    instruction: str = "",
) -> list[Task]:
    """The problems of a JSON-lines file; see data.tasks.read_tasks."""
    return read_tasks(
        path, fields=fields, domain=domain, system=system, instruction=instruction
    )


def dataset(
    *,
    dataset: str,
    path: str = "",
    split: str = "",
    seed: int = 0,
    system: str = "",
    instruction: str = "",
) -> list[Task]:
    """The problems of a published set, by name; see data.layouts.read_dataset."""
    return read_dataset(
        dataset,
        path=path,
        split=split,
        seed=seed,
        system=system,
        instruction=instruction,
    )


def mixed(
    *, sources: Mapping[str, Mapping[str, Any]], count: int, seed: int
) -> list[Task]:
    """`count` problems drawn from several sources; see data.mixture.mix.

    Args:
        sources: name to {"weight": float, "tasks": an entry as `tasks` takes it}.
        count: of all together.
        seed: of the draw.

    Raises:
        ValueError: a source without weight or tasks, or what the source raises.
    """
    for name, source in sources.items():
        if set(source) != {"weight", "tasks"}:
            raise ValueError(
                f"source {name} has {', '.join(source)}; it takes weight and tasks"
            )
    return mixture.mix(
        {name: bind(source["tasks"], TASKS)() for name, source in sources.items()},
        weights={name: source["weight"] for name, source in sources.items()},
        count=count,
        seed=seed,
    )


def filtered(
    *, tasks: Mapping[str, Any], filters: Mapping[str, Mapping[str, Any]]
) -> list[Task]:
    """The problems of another source that pass every filter.

    Args:
        tasks: an entry as `tasks` takes it.
        filters: any name to {"name": a key of data.filters.FILTERS, options}.

    Raises:
        ValueError: an unknown name or option, or no problem is left.
    """
    kept = bind(tasks, TASKS)()
    for spec in filters.values():
        kept = keep_tasks(kept, bind(spec, FILTERS))
    return kept


MODELS = {"directory": from_directory, "shape": from_shape, "toy": toy}
TASKS = {
    "jsonl": jsonl,
    "dataset": dataset,
    "mixed": mixed,
    "filtered": filtered,
    "reasoning_gym": reasoning_gym,
    "word_problems": word_problems,
}
