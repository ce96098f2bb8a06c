"""Tokens per second of servers that speak SGLang's HTTP API, request by request.

    python -m launch.serve_engine --model=models/smollm2 --port=30000 --length=256
    .venv-sglang/bin/python tests/sglang/server.py --model-path=models/smollm2 \
        --port=30001 --max-total-tokens=16384 --context-length=2048
    python -m benchmarks.serving --servers=ours=http://127.0.0.1:30000 \
        --servers=sglang=http://127.0.0.1:30001

The servers take turns, repetition by repetition, each with the same random prompts,
and return log-probabilities. Prints a line per repetition, then one JSON line with
medians, and how many times the last server's speed each of the others has.
"""

import asyncio
import json
import statistics
import time

import numpy as np
from absl import app, flags

from agentic_jax.rollout.engine import SamplingParams
from agentic_jax.rollout.sglang import SGLangServer

_SERVERS = flags.DEFINE_multi_string("servers", [], "NAME=URL of each server.")
_REQUESTS = flags.DEFINE_integer("requests", 16, "At a time.", 1)
_PROMPT_TOKENS = flags.DEFINE_integer("prompt_tokens", 64, "Of each request.", 1)
_NEW_TOKENS = flags.DEFINE_integer("new_tokens", 64, "Most of each request.", 1)
_VOCAB_SIZE = flags.DEFINE_integer("vocab_size", 49_152, "Ids are below this.", 1)
_REPETITIONS = flags.DEFINE_integer("repetitions", 5, "After one that warms up.", 1)


async def tokens_per_s(server: SGLangServer, prompts: np.ndarray, *, seed: int):
    """Sampled tokens of one request for each prompt, over the seconds of all."""

    async def one(i: int, prompt: np.ndarray) -> int:
        options = SamplingParams(max_tokens=_NEW_TOKENS.value, seed=seed + i)
        done = await server.generate(prompt, options, session=f"{seed}/{i}")
        await server.release(f"{seed}/{i}")
        return len(done.token_ids)

    start = time.perf_counter()
    counts = await asyncio.gather(*(one(i, prompt) for i, prompt in enumerate(prompts)))
    return sum(counts) / (time.perf_counter() - start)


async def measure(urls: dict[str, str]) -> dict:
    """What the JSON line says of the servers by name."""
    rng = np.random.default_rng(0)
    servers = {name: SGLangServer(url, timeout_s=600.0) for name, url in urls.items()}
    runs: list[dict[str, float]] = []
    sizes = (_REQUESTS.value, _PROMPT_TOKENS.value)
    for repetition in range(_REPETITIONS.value + 1):
        prompts = rng.integers(0, _VOCAB_SIZE.value, sizes)
        seed = repetition * _REQUESTS.value
        runs.append({})
        for name, server in servers.items():
            runs[-1][name] = await tokens_per_s(server, prompts, seed=seed)
        said = ", ".join(f"{name} {rate:.1f} tok/s" for name, rate in runs[-1].items())
        print(f"{repetition}: {said}", flush=True)
    for server in servers.values():
        await server.close()
    rates = {name: statistics.median(run[name] for run in runs[1:]) for name in urls}
    last = list(urls)[-1]
    return {
        "tokens_per_s": {name: round(rate, 1) for name, rate in rates.items()},
        f"times_{last}": {k: round(rate / rates[last], 2) for k, rate in rates.items()},
        "requests": _REQUESTS.value,
        "prompt_tokens": _PROMPT_TOKENS.value,
        "new_tokens": _NEW_TOKENS.value,
    }


def main(argv: list[str]) -> None:
    """Measures the servers that the flags name."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    if not _SERVERS.value:
        raise app.UsageError("name at least one server: --servers=NAME=URL")
    urls = dict(server.split("=", 1) for server in _SERVERS.value)
    print(json.dumps(asyncio.run(measure(urls))))


if __name__ == "__main__":
    app.run(main)
