"""Tokens per second of the embedded engine on a small random Qwen3.

    python -m benchmarks.rollout
    python -m benchmarks.rollout --shape=quickstart --deterministic

Prints a line per repetition, then one JSON line with the median.
"""

import asyncio
import json
import statistics
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from agentic_jax.models.config import ModelConfig
from agentic_jax.models.transformer import Transformer
from agentic_jax.rollout.engine import SamplingParams
from agentic_jax.rollout.jax_engine import JaxEngine


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
_SHAPE = flags.DEFINE_enum("shape", "peers", list(SHAPES), "Model and batch.")
_DETERMINISTIC = flags.DEFINE_bool("deterministic", False, "The engine's mode.")
_REPETITIONS = flags.DEFINE_integer("repetitions", 5, "After one that warms up.", 1)


async def measure(shape: Shape, *, deterministic: bool, repetitions: int) -> dict:
    """What the JSON line says; every repetition has prompts of its own."""
    ids = jnp.zeros((1, 2), jnp.int32)
    model = Transformer(shape.config)
    params = jax.jit(model.init)(jax.random.key(0), ids, ids, ids)["params"]
    engine = JaxEngine(
        params,
        shape.config,
        rows=shape.rows,
        length=shape.prompt_tokens + shape.new_tokens,
        deterministic=deterministic,
    )
    await engine.warm_up()
    rng = np.random.default_rng(0)

    async def one(seed: int) -> None:
        prompt = rng.integers(0, shape.vocab_size, shape.prompt_tokens)
        options = SamplingParams(max_tokens=shape.new_tokens, seed=seed)
        await engine.generate(prompt, options, session=str(seed))
        await engine.release(str(seed))

    runs = []
    for repetition in range(repetitions + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(one(seed) for seed in range(shape.rows)))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        new_tokens = shape.rows * shape.new_tokens
        rate = new_tokens / wall
        print(f"{repetition}: {rate:.0f} tok/s, {wall:.3f} s, {cpu:.3f} CPU-s")
        runs.append((rate, wall, cpu))
    stats = engine.stats()
    await engine.close()
    rates, walls, cpus = zip(*runs[1:], strict=True)
    return {
        "new_tokens_per_s": round(statistics.median(rates), 1),
        "seconds": round(statistics.median(walls), 4),
        "cpu_seconds": round(statistics.median(cpus), 4),
        "rows": shape.rows,
        "prompt_tokens": shape.prompt_tokens,
        "new_tokens": shape.new_tokens,
        "deterministic": deterministic,
        "compilations": stats["compilations"],
    }


def main(argv):
    """Measures one shape."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    options = {
        "deterministic": _DETERMINISTIC.value,
        "repetitions": _REPETITIONS.value,
    }
    result = asyncio.run(measure(SHAPES[_SHAPE.value], **options))
    print(json.dumps({"shape": _SHAPE.value, **result}))


if __name__ == "__main__":
    app.run(main)
