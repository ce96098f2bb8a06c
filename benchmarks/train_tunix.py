"""The same GRPO step as benchmarks/train.py, made by Tunix's own trainer, one a line.

Runs in an environment of its own, which needs nothing of this repository:

    python3.12 -m venv /tmp/tunixenv
    /tmp/tunixenv/bin/pip install google-tunix==0.1.7

For each line that it reads it makes a step and prints the seconds that it took.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from tunix.models.qwen3.model import ModelConfig, Qwen3
from tunix.rl import algo_core, common
from tunix.rl.grpo.dapo_learner import DAPOConfig
from tunix.sft.peft_trainer import PeftTrainer, TrainingConfig

ROWS, PROMPT, LENGTH = 16, 64, 256


def make_trainer() -> PeftTrainer:
    """Tunix's trainer with its GRPO loss, token-mean and without a KL term."""
    config = ModelConfig(
        num_layers=4,
        vocab_size=4_096,
        embed_dim=256,
        hidden_dim=768,
        num_heads=4,
        head_dim=64,
        num_kv_heads=2,
        rope_theta=10_000,
        norm_eps=1e-6,
        use_tied_embedding=True,
    )
    model = Qwen3(config, rngs=nnx.Rngs(params=jax.random.key(0)))
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(1e-6, weight_decay=0.01)
    )
    trainer = PeftTrainer(model, optimizer, TrainingConfig(eval_every_n_steps=10**9))
    algorithm = DAPOConfig(num_generations=8, beta=None, epsilon=0.2, epsilon_high=0.28)

    algorithm.temperature = 1.0  # Its learner sets this, of the rollouts.

    def loss(model, train_example):
        return algo_core.grpo_loss_fn(
            model, train_example, algorithm, pad_id=0, eos_id=-1
        )

    trainer = trainer.with_loss_fn(loss, has_aux=True)
    return trainer.with_gen_model_input_fn(lambda x: {"train_example": x})


def make_example() -> common.TrainExample:
    """Random prompts and completions that fill 16 rows, with targets off policy."""
    rng = np.random.default_rng(0)
    tokens = jnp.asarray(rng.integers(1, 4_096, (ROWS, LENGTH)), jnp.int32)
    completion = tokens[:, PROMPT:]
    return common.TrainExample(
        prompt_ids=tokens[:, :PROMPT],
        prompt_mask=jnp.ones((ROWS, PROMPT), bool),
        completion_ids=completion,
        completion_mask=jnp.ones(completion.shape, bool),
        advantages=jnp.asarray(rng.normal(size=ROWS), jnp.float32),
        ref_per_token_logps=None,
        old_per_token_logps=jnp.full(completion.shape, -8.3),
    )


def main() -> None:
    """Warms up, says so, and then makes a step for each line."""
    trainer, example = make_trainer(), make_example()
    step, _ = trainer.jit_train_and_eval_step(cache_nnx_graph=True)
    for _ in range(2):
        jax.block_until_ready(step(example))
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        jax.block_until_ready(step(example))
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
