r"""Speed of a GRPO update beside those of others, and how its cost grows.

    python -m benchmarks.train --torch_python=/tmp/torchenv/bin/python \
        --tunix_python=/tmp/tunixenv/bin/python
    python -m benchmarks.train --sequences=8,64,512
    python -m benchmarks.train --packing

The model is a random Qwen3 of 4.2 million parameters in float32. Without the last two
flags, an update on 16 x 256 tokens is timed, alternating with those of transformers +
torch and of Tunix, if their environments are given: benchmarks/train_torch.py and
train_tunix.py say how they are made. Prints a line for each round, then one JSON line.
"""

import json
import statistics
import time
from collections.abc import Callable

import jax
import numpy as np
from absl import app, flags

from agentic_jax.batch import Batch, Targets
from agentic_jax.models.config import ModelConfig
from agentic_jax.models.transformer import Transformer
from agentic_jax.packing import FIELDS, pack_rows
from agentic_jax.recipe import build_rl
from agentic_jax.sources import Model
from agentic_jax.training.build import build_device
from agentic_jax.training.update import update
from agentic_jax.trajectory import Task, Trajectory, Turn
from benchmarks.peers import open_peers
from configs import quickstart
from launch import flags as shared

_RUNS = flags.DEFINE_integer("runs", 7, "Timed updates of each, after one or two.", 1)
_TORCH = flags.DEFINE_string("torch_python", None, "Python of train_torch.py.")
_TUNIX = flags.DEFINE_string("tunix_python", None, "Python of train_tunix.py.")
_ROWS = flags.DEFINE_integer("rows", 16, "Rows of a micro-batch.", 1)
_CHUNK = flags.DEFINE_integer("chunk", 64, "batch.logprob_chunk.", 1)
_SEQUENCES = flags.DEFINE_list("sequences", [], "Numbers of sequences to update on.")
_PACKING = flags.DEFINE_bool("packing", False, "Rows that drawn lengths are packed in.")


def peer_model() -> Model:
    """The model that Tunix and transformers were measured with."""
    config = ModelConfig(
        family="qwen3",
        vocab_size=4_096,
        width=256,
        num_layers=4,
        num_heads=4,
        num_kv_heads=2,
        head_dim=64,
        mlp_width=768,
        qk_norm=True,
        tie_embeddings=True,
    )
    tokens = np.zeros((1, 2), np.int32)
    init = jax.jit(Transformer(config).init)
    params = init(jax.random.key(0), tokens, tokens, tokens)["params"]
    return Model(params, config, tokenizer=None)


def make_step(*, length: int) -> Callable[[Batch, Targets], tuple[float, float]]:
    """A function that makes an update, and says its seconds and CPU seconds."""
    config = quickstart.get_config("small")
    config.rollout.update(
        max_prompt_tokens=length // 4, max_response_tokens=length // 2
    )
    config.engine.length = config.batch.row_length = length
    config.batch.rows_per_microbatch = _ROWS.value
    config.batch.logprob_chunk = _CHUNK.value
    recipe = build_rl(config)
    device, state = build_device(recipe, peer_model(), temperature=1.0)

    def step(batch: Batch, targets: Targets) -> tuple[float, float]:
        nonlocal state
        start = time.perf_counter(), time.process_time()
        state, _ = update(device, state, batch, targets)
        jax.block_until_ready(state)
        return time.perf_counter() - start[0], time.process_time() - start[1]

    return step


def full_rows(count: int, *, length: int) -> tuple[Batch, Targets]:
    """`count` random trajectories that fill their rows, and targets off policy."""
    rng = np.random.default_rng(0)
    shape = (count, length)
    fields = {name: np.ones(shape, kind) for name, kind in FIELDS.items()}
    fields["tokens"] = rng.integers(0, 4_096, shape).astype(np.int32)
    fields["positions"][:] = np.arange(length)
    mask = fields["mask"] = np.arange(length)[None].repeat(count, 0) >= length // 4
    advantages = np.broadcast_to(rng.normal(size=(count, 1)), shape)
    targets = Targets(
        mask=mask,
        segment_ids=fields["segment_ids"],
        old_logprobs=np.full(shape, -8.3, np.float32),
        advantages=advantages.astype(np.float32),
        weights=(mask / mask.sum()).astype(np.float32),
    )
    return Batch(**fields), targets


def beside_peers() -> dict:
    """Medians of alternating updates on 16 rows, and how much longer the peers take."""
    count, length = 16, 256
    step, rows = make_step(length=length), full_rows(count, length=length)
    step(*rows)
    scripts = {
        "torch": (_TORCH.value, "benchmarks/train_torch.py"),
        "tunix": (_TUNIX.value, "benchmarks/train_tunix.py"),
    }
    seconds: dict[str, list[float]] = {"ours": []}
    with open_peers(scripts) as peers:
        for _ in range(_RUNS.value):
            seconds["ours"].append(step(*rows)[0])
            for name, peer in peers.items():
                seconds.setdefault(name, []).append(peer.seconds("step"))
            print({name: round(runs[-1], 3) for name, runs in seconds.items()})
    medians = {name: statistics.median(runs) for name, runs in seconds.items()}
    return {
        "tokens_per_s": count * length / medians["ours"],
        "seconds": medians,
        "ratios": {name: x / medians["ours"] for name, x in medians.items()},
    }


def growth(counts: list[int]) -> dict:
    """CPU microseconds per token of updates on more and more sequences of 64 tokens."""
    length = 64
    step = make_step(length=length)
    cost = {}
    for count in counts:
        rows = full_rows(count, length=length)
        runs = [step(*rows)[1] for _ in range(_RUNS.value + 1)][1:]
        cost[count] = statistics.median(runs) / (count * length) * 1e6
        print(f"{count} sequences: {cost[count]:.1f} us per token")
    low, high = min(cost.values()), max(cost.values())
    return {"cpu_us_per_token": cost, "spread": high / low - 1}


def packing(*, batches: int = 100, trajectories: int = 1_024) -> dict:
    """Rows x length over real tokens; lengths have a mean of 4K and a tail of 16K."""
    length, sigma = 16_384, 0.7
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(batches):
        drawn = rng.lognormal(np.log(4_096) - sigma**2 / 2, sigma, trajectories)
        lengths = np.clip(drawn, 256, length).astype(int)
        batch, *_ = pack_rows(
            [_trajectory(n) for n in lengths],
            prompt_ids=[1] * trajectories,
            length=length,
            rows_multiple=_ROWS.value,
        )
        ratios.append(batch.tokens.size / lengths.sum())
    return {
        "batches": batches,
        "trajectories": trajectories,
        "ratio_mean": statistics.mean(ratios),
        "ratio_max": max(ratios),
    }


def _trajectory(length: int) -> Trajectory:
    task = Task("drawn", (), "")
    turn = Turn(np.zeros(length - 64, np.int32), np.zeros(length - 64, np.float32), 0)
    return Trajectory(task, np.zeros(64, np.int32), (turn,), "answer")


def main(argv: list[str]) -> None:
    """Measures what the flags ask for."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    shared.prepare()  # As runs do.
    if _PACKING.value:
        result = packing()
    elif _SEQUENCES.value:
        result = growth([int(count) for count in _SEQUENCES.value])
    else:
        result = beside_peers()
    print(json.dumps({"rows": _ROWS.value, "chunk": _CHUNK.value, **result}))


if __name__ == "__main__":
    app.run(main)
