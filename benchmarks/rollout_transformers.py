"""What benchmarks/rollout.py samples, in transformers and torch, once for each line.

Runs in an environment of its own, which needs nothing of this repository:

    python3 -m venv /tmp/torchenv
    /tmp/torchenv/bin/pip install torch==2.13.0 transformers==5.24.0 \
        --extra-index-url https://download.pytorch.org/whl/cpu

Each line that it reads is ROWS PROMPT_TOKENS NEW_TOKENS; it samples at temperature 1
after random prompts, without log-probabilities, and prints the seconds that it took.
"""

import os
import sys
import time

# Threads that spin while they wait for one another crawl where others use the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch  # noqa: E402
from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: E402

VOCAB_SIZE = 4_096


def main() -> None:
    """Says that it is ready, and then samples for each line."""
    torch.manual_seed(0)
    torch.set_num_threads(2)
    config = Qwen3Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        intermediate_size=768,
        tie_word_embeddings=True,
        eos_token_id=None,  # Nothing ends early.
        bos_token_id=None,
        pad_token_id=0,
    )
    model = Qwen3ForCausalLM(config).eval()
    print("ready", flush=True)
    for line in sys.stdin:
        rows, prompt_tokens, new_tokens = map(int, line.split())
        prompts = torch.randint(1, VOCAB_SIZE, (rows, prompt_tokens))
        start = time.perf_counter()
        sampled = model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=True,
            top_k=0,
            max_new_tokens=new_tokens,
        )
        seconds = time.perf_counter() - start
        if sampled.shape[1] != prompt_tokens + new_tokens:
            raise RuntimeError(f"generate gave {tuple(sampled.shape)}; it ended early")
        print(seconds, flush=True)


if __name__ == "__main__":
    main()
