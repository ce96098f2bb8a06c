"""One process of a small run on shared-out groups; see test_processes.py.

python -m tests.training.process_worker COORDINATOR PROCESSES PROCESS_ID WORKDIR WHAT
"""

import functools
import json
import os
import pathlib
import signal
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from agentic_jax.models.config import ModelConfig
from agentic_jax.models.hf_weights import param_shapes
from agentic_jax.packing import pack_step
from agentic_jax.recipe import build_rl
from agentic_jax.sources import Model
from agentic_jax.training import processes
from agentic_jax.training.build import build_device
from agentic_jax.training.checkpoint import Checkpointer
from agentic_jax.training.update import score_step, step_targets, update_step
from configs import quickstart
from tests.fakes import sample, turn

HEARTBEAT = 10  # Seconds.
LENGTH = 64


def group(step, number):
    """What collecting group `number` of a step gives, whoever collects it."""
    rng = np.random.default_rng([step, number])
    return [
        sample(
            rng.integers(20, 99, 5),
            turn(rng.integers(20, 99, rng.integers(2, 20)), [7, 8], ["ok"]),
            turn(rng.integers(20, 99, 3)),
            reward=float(rng.normal()),
        )
        for _ in range(4)
    ]


MODEL = ModelConfig(
    family="qwen3",
    vocab_size=100,
    width=16,
    num_layers=1,
    num_heads=2,
    num_kv_heads=1,
    head_dim=8,
    mlp_width=24,
    tie_embeddings=True,
    qk_norm=True,
)


@functools.cache
def device_and_state(axes):
    """The jitted functions on a mesh of `axes`, and the first state."""
    config = quickstart.get_config("tiny")
    config.mesh.update(dict(axes))
    config.batch.logprob_chunk = 32
    config.optimizer.eps = 1e-3  # Or Adam would blow rounding up.
    recipe = build_rl(config)
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: 0.3 * rng.standard_normal(leaf.shape, "f4"), param_shapes(MODEL)
    )
    return build_device(recipe, Model(params, MODEL, None), temperature=1.0)


def train(workdir, num_steps, axes):
    """Runs up to num_steps, from where the workdir stands; leaves what the run made."""
    device, first = device_and_state(tuple(axes.items()))
    checkpoints = Checkpointer(workdir / "checkpoints", keep=2)
    now = jax.tree.map(jnp.copy, first)  # An update donates what it starts from.
    if start := checkpoints.latest() or 0:
        now, _ = checkpoints.restore(now)
    collected, received, metrics = [], [], {}
    for step in range(start, num_steps):
        collected = list(processes.my_share(3))
        groups = processes.exchange([group(step, number) for number in collected])
        received = processes.exchange(collected)
        packed = pack_step(
            groups,
            num_updates=1,
            length=LENGTH,
            rows_multiple=device.rows,
            rng=np.random.default_rng(step),
        )
        scores = score_step(device, now.params, packed.batch)
        targets = step_targets(device, packed, scores)
        now, metrics = update_step(device, now, packed, targets)
        checkpoints.save(step + 1, now, {})
    checkpoints.close()
    params = jax.device_get(device.weights(now.params))
    if processes.is_writer():
        np.savez(workdir / "params.npz", *jax.tree.leaves(params))
        report = {"collected": collected, "received": received, "metrics": metrics}
        (workdir / "metrics.json").write_text(json.dumps(report))


def main(coordinator, num_processes, process_id, workdir, what):
    workdir = pathlib.Path(workdir)
    with processes.joined(
        coordinator=coordinator,
        num_processes=int(num_processes),
        process_id=int(process_id),
        heartbeat_timeout=HEARTBEAT,
        start_timeout=120,
    ):
        if what.startswith("train"):
            train(workdir, int(what.removeprefix("train")), {"fsdp": 4})
            return
        last = jax.process_index() == jax.process_count() - 1
        processes.exchange(["started"])
        if what == "wait":  # For one that is slow, but alive.
            time.sleep(45 * last)
            print(processes.exchange([jax.process_index()]))
        elif not last:
            processes.exchange([0])
        elif what == "raise":
            raise ValueError("the tools are broken")
        elif what == "die":
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
