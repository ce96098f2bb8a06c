"""What benchmarks/rollout.py samples, with Tunix's own sampler, once for each line.

Runs in an environment of its own, which needs nothing of this repository:

    python3.12 -m venv /tmp/tunixenv
    /tmp/tunixenv/bin/pip install google-tunix==0.1.7

Each line that it reads is ROWS PROMPT_TOKENS NEW_TOKENS; it samples at temperature 1
after random prompts, without log-probabilities, and prints the seconds that it took.
"""

import sys
import time

import jax
import numpy as np
from flax import nnx
from tunix.generate.sampler import CacheConfig, Sampler
from tunix.models.qwen3.model import ModelConfig, Qwen3

VOCAB_SIZE = 4_096


class Numbers:
    """The tokenizer of texts that spell their token ids; 0 is padding."""

    def encode(self, text: str) -> list[int]:
        """The ids that the text spells."""
        return [int(word) for word in text.split()]

    def decode(self, ids: list[int]) -> str:
        """The text that spells the ids."""
        return " ".join(map(str, ids))

    def bos_id(self) -> int:
        """None is put in front."""
        return 0

    def eos_id(self) -> int:
        """None ends a sequence."""
        return -1

    def pad_id(self) -> int:
        """What prompts of other lengths would be filled up with."""
        return 0


def make_sampler(length: int) -> Sampler:
    """Tunix's sampler over the model of benchmarks/rollout.py."""
    config = ModelConfig(
        num_layers=4,
        vocab_size=VOCAB_SIZE,
        embed_dim=256,
        hidden_dim=768,
        num_heads=4,
        head_dim=64,
        num_kv_heads=2,
        rope_theta=10_000,
        norm_eps=1e-6,
        use_tied_embedding=True,
    )
    cache = CacheConfig(
        cache_size=length,
        num_layers=config.num_layers,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
    )
    model = Qwen3(config, rngs=nnx.Rngs(params=jax.random.key(0)))
    return Sampler(model, Numbers(), cache)


def main() -> None:
    """Says that it is ready, and then samples for each line."""
    rng = np.random.default_rng(0)
    samplers: dict[int, Sampler] = {}
    print("ready", flush=True)
    for seed, line in enumerate(sys.stdin):
        rows, prompt_tokens, new_tokens = map(int, line.split())
        length = prompt_tokens + new_tokens
        if length not in samplers:
            samplers[length] = make_sampler(length)
        ids = rng.integers(1, VOCAB_SIZE, (rows, prompt_tokens))
        prompts = [" ".join(map(str, row)) for row in ids]
        start = time.perf_counter()
        done = samplers[length](
            prompts,
            max_generation_steps=new_tokens,
            max_prompt_length=prompt_tokens,
            temperature=1.0,
            top_p=1.0,
            eos_tokens=[-1],
            seed=seed,
        )
        seconds = time.perf_counter() - start
        if any(len(tokens) != new_tokens for tokens in done.tokens):
            raise RuntimeError("a sequence of the sampler ended early")
        print(seconds, flush=True)


if __name__ == "__main__":
    main()
