"""Cost of a step's advantages and loss weights against the number of trajectories.

python -m benchmarks.losses --tokens=16384
"""

import time

import jax
import numpy as np
from absl import app, flags

from agentic_jax.batch import Batch, Outcome, Scores
from agentic_jax.losses import AGGREGATIONS, CREDITS

TOKENS = flags.DEFINE_integer("tokens", 16_384, "Tokens per trajectory.")
COUNTS = flags.DEFINE_multi_integer(
    "trajectories", [256, 512, 1_024, 2_048, 4_096], "Numbers of trajectories."
)
GROUP = flags.DEFINE_integer("group", 16, "Samples per prompt.")
AGGREGATION = flags.DEFINE_string("aggregation", "sequence_mean", "Of AGGREGATIONS.")


def make_step(num_trajectories: int, length: int, group: int) -> tuple:
    """A step with one trajectory per row, three quarters of it sampled."""
    rng = np.random.default_rng(0)
    shape = (num_trajectories, length)
    ones = np.ones(shape, np.int32)
    mask = np.arange(length)[None, :] % 4 > 0
    mask = np.broadcast_to(mask, shape).copy()
    rows = np.arange(num_trajectories, dtype=np.int32)
    grid = rows.reshape(-1, group)
    reward = rng.random(grid.shape).astype(np.float32)
    outcome = Outcome(
        reward=reward,
        score=reward,
        num_calls=np.ones_like(grid),
        valid=np.ones(grid.shape, bool),
        row=grid,
        segment=np.ones_like(grid),
    )
    prompt_ids = np.broadcast_to((rows // group + 1)[:, None], shape)
    batch = Batch(
        tokens=ones,
        positions=ones,
        segment_ids=ones,
        prompt_ids=prompt_ids,
        turn_ids=ones,
        mask=mask,
        behavior_logprobs=np.zeros(shape, np.float32),
    )
    return outcome, batch


def main(argv: list[str]) -> None:
    """Prints seconds for each size, and per million tokens: flat means linear."""
    del argv
    aggregation = AGGREGATIONS[AGGREGATION.value]

    @jax.jit
    def advantages_and_weights(outcome: Outcome, batch: Batch) -> tuple:
        scores = Scores(batch.behavior_logprobs, batch.behavior_logprobs)
        advantages = CREDITS["group_normalized"](outcome, scores, batch, eps=1e-6)
        weights = aggregation(batch.mask, batch.segment_ids, batch.prompt_ids)
        return advantages, weights

    print(f"{jax.devices()[0].device_kind}, {TOKENS.value:,} tokens per trajectory")
    print(f"{'trajectories':>12}{'seconds':>10}{'s per million tokens':>22}")
    for count in COUNTS.value:
        step = jax.device_put(make_step(count, TOKENS.value, GROUP.value))
        jax.block_until_ready(advantages_and_weights(*step))
        start = time.perf_counter()
        jax.block_until_ready(advantages_and_weights(*step))
        seconds = time.perf_counter() - start
        per_million = seconds / (count * TOKENS.value / 1e6)
        print(f"{count:>12,}{seconds:>10.3f}{per_million:>22.4f}")


if __name__ == "__main__":
    app.run(main)
