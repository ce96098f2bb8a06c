"""Tokens per second of the embedded engine, beside transformers' and Tunix's.

    python -m benchmarks.rollout --torch_python=/tmp/torchenv/bin/python \
        --tunix_python=/tmp/tunixenv/bin/python
    python -m benchmarks.rollout --shape=quickstart --deterministic
    python -m benchmarks.rollout --turns=6

The model is a small random Qwen3. The peers' environments are made as
benchmarks/rollout_transformers.py and benchmarks/rollout_tunix.py say; they take turns
with the engine, repetition by repetition, and only they leave out log-probabilities.
With turns, 32 trajectories of so many turns are played instead, alternately with tool
calls of 0.2 seconds after each turn but the last and with calls that take no time. A
turn has 16 to 112 tokens, the same in both. Prints a line per repetition, then one
JSON line with medians.
"""

import asyncio
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from agentic_jax.models.config import ModelConfig
from agentic_jax.models.transformer import Transformer
from agentic_jax.rollout.engine import SamplingParams
from agentic_jax.rollout.jax_engine import JaxEngine
from benchmarks.peers import open_peers


@dataclass(frozen=True)
class Shape:
    """A model, and how many sequences of how many tokens it decodes."""

    width: int
    head_dim: int
    mlp_width: int
    vocab_size: int
    rows: int
    prompt_tokens: int
    new_tokens: int

    @property
    def config(self) -> ModelConfig:
        """Qwen3 of 4 layers, 4 heads and 2 key heads, tied, float32."""
        return ModelConfig(
            family="qwen3",
            vocab_size=self.vocab_size,
            width=self.width,
            num_layers=4,
            num_heads=4,
            num_kv_heads=2,
            head_dim=self.head_dim,
            mlp_width=self.mlp_width,
            qk_norm=True,
            tie_embeddings=True,
        )


SHAPES = {
    "peers": Shape(256, 64, 768, 4096, 16, 128, 128),  # 4.2M parameters.
    "quickstart": Shape(128, 32, 384, 400, 128, 64, 96),  # 0.84M parameters.
}
TRAJECTORIES, TURN_TOKENS, RESULT_TOKENS, TOOL_S = 32, (16, 112), 32, 0.2
_SHAPE = flags.DEFINE_enum("shape", "peers", list(SHAPES), "Model and batch.")
_DETERMINISTIC = flags.DEFINE_bool("deterministic", False, "The engine's mode.")
_REPETITIONS = flags.DEFINE_integer("repetitions", 7, "After one that warms up.", 1)
_TURNS = flags.DEFINE_integer("turns", 0, "Of each trajectory; 0 is one request.", 0)
_TORCH = flags.DEFINE_string("torch_python", None, "Python with transformers.")
_TUNIX = flags.DEFINE_string("tunix_python", None, "Python with Tunix.")


def make_engine(shape: Shape, *, rows: int, length: int) -> JaxEngine:
    """The engine over the shape's model with random weights."""
    ids = jnp.zeros((1, 2), jnp.int32)
    params = jax.jit(Transformer(shape.config).init)(jax.random.key(0), ids, ids, ids)
    return JaxEngine(
        params["params"],
        shape.config,
        rows=rows,
        length=length,
        deterministic=_DETERMINISTIC.value,
    )


async def sample_batch(engine: JaxEngine, shape: Shape, rng) -> float:
    """Seconds of one request a row, all at one time, with prompts of their own."""

    async def one(seed: int, prompt: np.ndarray) -> None:
        options = SamplingParams(max_tokens=shape.new_tokens, seed=seed)
        await engine.generate(prompt, options, session=str(seed))
        await engine.release(str(seed))

    prompts = rng.integers(0, shape.vocab_size, (shape.rows, shape.prompt_tokens))
    start = time.perf_counter()
    await asyncio.gather(*(one(i, prompt) for i, prompt in enumerate(prompts)))
    return time.perf_counter() - start


async def beside_peers(shape: Shape) -> dict:
    """Medians of the engine's and the peers' alternating repetitions."""
    length = shape.prompt_tokens + shape.new_tokens
    engine = make_engine(shape, rows=shape.rows, length=length)
    await engine.warm_up()
    rng = np.random.default_rng(0)
    scripts = {
        "transformers": (_TORCH.value, "benchmarks/rollout_transformers.py"),
        "tunix": (_TUNIX.value, "benchmarks/rollout_tunix.py"),
    }
    work = f"{shape.rows} {shape.prompt_tokens} {shape.new_tokens}"
    with open_peers(scripts) as peers:

        async def repeat() -> dict[str, float]:
            ours = await sample_batch(engine, shape, rng)
            return {"ours": ours} | {k: p.seconds(work) for k, p in peers.items()}

        runs = await repeated(repeat)
    new_tokens = shape.rows * shape.new_tokens
    result = {
        **{f"{name}_tokens_per_s": round(new_tokens / s) for name, s in runs.items()},
        **{f"times_{name}": round(runs[name] / runs["ours"], 2) for name in peers},
        "new_tokens": new_tokens,
        "prompt_tokens": shape.rows * shape.prompt_tokens,
        "compilations": engine.stats()["compilations"],
    }
    await engine.close()
    return result


async def play(
    engine: JaxEngine, shape: Shape, lengths: np.ndarray, rng, *, tool_s: float
) -> float:
    """Seconds of all trajectories, each with a prompt of its own.

    Args:
        engine: with a row for each.
        shape: gives prompt and vocabulary.
        lengths: [N, K] tokens of each turn.
        rng: draws prompts and tool results.
        tool_s: seconds of a call.
    """

    async def one(seed: int) -> None:
        context = rng.integers(0, shape.vocab_size, shape.prompt_tokens)
        for turn, tokens in enumerate(lengths[seed].tolist()):
            if turn:
                await asyncio.sleep(tool_s)
                result = rng.integers(0, shape.vocab_size, RESULT_TOKENS)
                context = np.concatenate([context, result])
            options = SamplingParams(max_tokens=tokens, seed=seed)
            done = await engine.generate(context, options, session=str(seed))
            context = np.concatenate([context, done.token_ids])
        await engine.release(str(seed))

    start = time.perf_counter()
    await asyncio.gather(*(one(seed) for seed in range(len(lengths))))
    return time.perf_counter() - start


async def with_tools(shape: Shape, *, turns: int) -> dict:
    """Medians of alternating repetitions with tool calls that take time, and none."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(*TURN_TOKENS, (TRAJECTORIES, turns), endpoint=True)
    longest = int(lengths.sum(axis=1).max()) + (turns - 1) * RESULT_TOKENS
    engine = make_engine(shape, rows=TRAJECTORIES, length=shape.prompt_tokens + longest)
    await engine.warm_up()

    async def repeat() -> dict[str, float]:
        seconds = {"without": 0.0, "with_tools": TOOL_S}
        return {
            name: await play(engine, shape, lengths, rng, tool_s=tool_s)
            for name, tool_s in seconds.items()
        }

    runs = await repeated(repeat)
    counts = engine.stats()
    await engine.close()
    known = counts["reused_tokens"] + counts["prefilled_tokens"]
    return {
        **{f"{name}_seconds": round(s, 3) for name, s in runs.items()},
        "ratio": round(runs["with_tools"] / runs["without"], 3),
        "sampled_tokens": int(lengths.sum()),
        "tool_seconds": round(TOOL_S * (turns - 1), 3),
        "reused_fraction": round(counts["reused_tokens"] / known, 3),
        "compilations": counts["compilations"],
    }


async def repeated(repeat: Callable) -> dict[str, float]:
    """Median seconds by name, of all repetitions but the first."""
    runs = []
    for repetition in range(_REPETITIONS.value + 1):
        runs.append(await repeat())
        said = ", ".join(f"{name} {s:.3f} s" for name, s in runs[-1].items())
        print(f"{repetition}: {said}", flush=True)
    return {name: statistics.median(run[name] for run in runs[1:]) for name in runs[0]}


def main(argv: list[str]) -> None:
    """Measures what the flags ask for."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    shape = SHAPES[_SHAPE.value]
    if _TURNS.value:
        measuring = with_tools(shape, turns=_TURNS.value)
    else:
        measuring = beside_peers(shape)
    result = asyncio.run(measuring)
    flag = {"shape": _SHAPE.value, "deterministic": _DETERMINISTIC.value}
    print(json.dumps({**flag, **result}))


if __name__ == "__main__":
    app.run(main)
