"""How much of the devices' arithmetic and memory a running job uses."""

import functools
import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from agentic_jax.models.config import ModelConfig
from agentic_jax.scale.chips import PEAK_FLOPS_PER_S
from agentic_jax.scale.flops import forward_flops, step_flops


def update_metrics(
    config: ModelConfig, lengths: Sequence[int], *, num_devices: int, seconds: float
) -> dict[str, float]:
    """Rates of an update and device memory, as time/ metrics.

    time/mfu_fraction is the share of peak_flops_per_s that went into step_flops: what
    is made again, padding and waiting count as unused. The first update of a process
    compiles, so its rates are low. time/device_peak_mb is of the first device of this
    process, and absent where the backend does not tell, as on CPUs.

    Args:
        config: of the model, with its adapters.
        lengths: tokens of each trajectory learned from.
        num_devices: that the run's mesh has.
        seconds: that the update took.
    """
    flops = step_flops(forward_flops(config, lengths), config) / max(seconds, 1e-9)
    metrics = {
        "time/update_tokens_per_s": sum(lengths) / max(seconds, 1e-9),
        "time/update_flops_per_s": flops,
        "time/mfu_fraction": flops / peak_flops_per_s(config.dtype, num_devices),
    }
    memory = jax.local_devices()[0].memory_stats()
    if memory and "peak_bytes_in_use" in memory:
        metrics["time/device_peak_mb"] = memory["peak_bytes_in_use"] / 1e6
    return metrics


def peak_flops_per_s(dtype: str, num_devices: int) -> float:
    """The most operations a second that so many of this run's devices can do.

    As published where chips.PEAK_FLOPS_PER_S has them; else what a large product in
    this dtype reaches here, measured once. The virtual devices of a CPU share it.
    """
    device = jax.local_devices()[0]
    if published := PEAK_FLOPS_PER_S.get(device.device_kind):
        return published * num_devices
    shared = device.platform == "cpu"
    return _measured(dtype) * (jax.process_count() if shared else num_devices)


@functools.cache
def _measured(dtype: str) -> float:
    """Operations a second of the best of a few products on this process's device."""
    device = jax.local_devices()[0]
    size = 1_024 if device.platform == "cpu" else 8_192
    with jax.default_device(device):
        matrix = jnp.ones((size, size), dtype)
        product = jax.jit(jnp.matmul)
        jax.block_until_ready(product(matrix, matrix))
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            jax.block_until_ready(product(matrix, matrix))
            seconds.append(time.perf_counter() - start)
    return 2.0 * size**3 / min(seconds)
