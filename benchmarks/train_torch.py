"""The same GRPO step as benchmarks/train.py in transformers and torch, one a line.

Runs in an environment of its own, which needs nothing of this repository:

    python3 -m venv /tmp/torchenv
    /tmp/torchenv/bin/pip install torch==2.13.0 transformers==5.24.0 \
        --extra-index-url https://download.pytorch.org/whl/cpu
    /tmp/torchenv/bin/python benchmarks/train_torch.py

For each line that it reads it makes a step and prints the seconds that it took.
"""

import os
import sys
import time

# Threads that spin while they wait for one another crawl where others use the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch  # noqa: E402
from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: E402

ROWS, LENGTH = 16, 256


def grpo_step(model, optimizer, tokens, old_logprobs, advantages, mask) -> None:
    """One clipped, token-mean update over all rows."""
    logits = model(tokens).logits[:, :-1].float()
    picked = logits.gather(-1, tokens[:, 1:, None])[..., 0]
    ratio = torch.exp(picked - torch.logsumexp(logits, -1) - old_logprobs)
    clipped = torch.clamp(ratio, 0.8, 1.28)
    surrogate = -torch.minimum(ratio * advantages, clipped * advantages)
    loss = (surrogate * mask).sum() / mask.sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def main() -> None:
    """Warms up, says so, and then makes a step for each line."""
    torch.manual_seed(0)
    torch.set_num_threads(2)
    config = Qwen3Config(
        vocab_size=4_096,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        intermediate_size=768,
        tie_word_embeddings=True,
        use_cache=False,
    )
    model = Qwen3ForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.01)
    tokens = torch.randint(0, config.vocab_size, (ROWS, LENGTH))
    shape = (ROWS, LENGTH - 1)
    old_logprobs = torch.full(shape, -8.3)
    mask = (torch.arange(LENGTH - 1) >= 63).float().expand(shape)
    batch = (tokens, old_logprobs, torch.randn(ROWS, 1).expand(shape), mask)
    for _ in range(2):
        grpo_step(model, optimizer, *batch)
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        grpo_step(model, optimizer, *batch)
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
