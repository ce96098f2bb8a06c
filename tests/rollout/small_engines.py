"""A small model, engines over it, and ways to play on them."""

import asyncio
import dataclasses
import threading

import jax
import jax.numpy as jnp
import numpy as np

from agentic_jax.models.config import ModelConfig
from agentic_jax.models.transformer import Transformer
from agentic_jax.rollout.engine import SamplingParams
from agentic_jax.rollout.jax_engine import JaxEngine

CONFIG = ModelConfig(
    family="qwen3",
    vocab_size=64,
    width=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    mlp_width=48,
    qk_norm=True,
    tie_embeddings=True,
)
SIZES = {"rows": 4, "length": 64, "chunk": 4, "prefill_chunk": 8, "prefill_rows": 2}
RESULT = [1, 2, 3, 4, 5]  # What a tool would answer.


def make_params(seed):
    ids = jnp.zeros((1, 2), jnp.int32)
    init = jax.jit(Transformer(CONFIG).init)
    params = init(jax.random.key(seed), ids, ids, ids)["params"]
    # Wider embeddings make sharper distributions than a fresh model's.
    return jax.tree.map(lambda x: 4 * x, params)


def decode(token_ids):
    return "".join(chr(48 + t) for t in token_ids)


def make_engine(params, **options):
    return JaxEngine(
        params, CONFIG, **{"deterministic": True, "decode": decode, **SIZES, **options}
    )


ENGINES = {}  # By options: compiling takes longer than playing.
SESSIONS = ("next", *"abcdefsx", *map(str, range(9)))


def run(params, play, **options):
    """What the coroutine play(engine) returns, on an engine that remembers nothing."""
    key = repr(sorted(options.items()))
    if key not in ENGINES:
        ENGINES[key] = make_engine(params, **options)

    async def main():
        for session in SESSIONS:
            await ENGINES[key].release(session)
        await ENGINES[key].update_weights(params, 0)
        return await play(ENGINES[key])

    return asyncio.run(main())


def prompt(seed, size=11):
    return np.random.default_rng(seed).integers(0, 64, size).astype(np.int32)


# Name -> prompt and seed; a and b are of one group, c shares 9 tokens with them.
CASES = {
    "a": (prompt(0), 1),
    "b": (prompt(0), 2),
    "c": (np.concatenate([prompt(0)[:9], prompt(1)]), 1),
    "d": (prompt(3, size=1), 4),
    "e": (prompt(4, size=30), 5),
    "f": (prompt(5, size=17), 6),
}


async def two_turns(engine, name):
    """The two completions of a session that reads a tool result in between."""
    context, seed = CASES[name]
    params = SamplingParams(max_tokens=9, seed=seed, stop_token_ids=(7,))
    first = await engine.generate(context, params, session=name)
    context = np.concatenate([context, first.token_ids, RESULT])
    params = dataclasses.replace(params, seed=seed + 100, stop_strings=("A", "BC"))
    second = await engine.generate(context, params, session=name)
    await engine.release(name)
    return first, second


async def one_by_one(engine, names):
    return {name: await two_turns(engine, name) for name in names}


async def together(engine, names):
    done = await asyncio.gather(*(two_turns(engine, name) for name in names))
    return dict(zip(names, done, strict=True))


class Gate:
    """A decoder that stops the engine's thread after a chunk until it is let go."""

    def __init__(self):
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, token_ids):
        self.reached.set()
        assert self.open.wait(timeout=60)
        return ""


def run_behind_gate(params, play, **options):
    """As run, with play(engine, gate) and an engine that ends afterwards."""

    async def main():
        gate = Gate()
        engine = make_engine(params, decode=gate, **options)
        try:
            return await play(engine, gate)
        finally:
            gate.open.set()
            await engine.close()

    return asyncio.run(main())


LONG = SamplingParams(max_tokens=50, stop_strings=("never",))
