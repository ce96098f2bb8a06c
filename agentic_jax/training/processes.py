"""Several processes of one run: how they join, share work, and stop together.

Every process runs the same program on the same config. Rollouts are shared out; what
comes of them is exchanged, so that from there on every process computes the same on the
host, and on the devices its own part of every array. Process 0 alone writes.
"""

import contextlib
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from absl import logging
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

T = TypeVar("T")


@contextlib.contextmanager
def joined(
    *,
    coordinator: str,
    num_processes: int,
    process_id: int,
    heartbeat_timeout: int = 60,
    start_timeout: int = 300,
) -> Iterator[None]:
    """Within it, jax.devices() are those of all processes; enter before any use of jax.

    If one process raises, it ends at once, without waiting for the others; if one dies,
    the others end within heartbeat_timeout, or as soon as they next need it. Started
    again with the same commands, or with another number of processes, they resume.

    Args:
        coordinator: "host:port" that process 0 listens on; "auto" takes everything from
            the environment, as TPU pods, Slurm and MPI set it; "" is a single process.
        num_processes: of the run.
        process_id: of this one, from 0.
        heartbeat_timeout: seconds of silence after which a process counts as dead.
        start_timeout: seconds to wait for the others at the start.

    Raises:
        ValueError: a process number that does not exist.
        RuntimeError: the others did not come in time.
    """
    if not coordinator:
        yield
        return
    if coordinator != "auto" and not 0 <= process_id < num_processes:
        raise ValueError(
            f"process_id is {process_id} of num_processes {num_processes}; they are "
            "numbered from 0"
        )
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    given = (
        {}
        if coordinator == "auto"
        else {
            "coordinator_address": coordinator,
            "num_processes": num_processes,
            "process_id": process_id,
        }
    )
    jax.distributed.initialize(
        **given,
        initialization_timeout=start_timeout,
        heartbeat_timeout_seconds=heartbeat_timeout,
    )
    logging.info(
        "process %d of %d, with %d of %d devices; if one is lost, all stop within %d s",
        jax.process_index(),
        jax.process_count(),
        jax.local_device_count(),
        jax.device_count(),
        heartbeat_timeout,
    )
    try:
        yield
    except BaseException as error:
        logging.error(
            "process %d stops, and with it the others: %s: %s. Mend it and start all "
            "again: they resume",
            jax.process_index(),
            type(error).__name__,
            error,
        )
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)  # An orderly end would wait for the others, who wait for this one.
    jax.distributed.shutdown()


def num_processes() -> int:
    """Of the run."""
    return jax.process_count()


def is_writer() -> bool:
    """Whether this process writes metrics, traces and models; exactly one does."""
    return jax.process_index() == 0


def my_share(count: int) -> range:
    """Which of `count` numbered pieces of work are this process's.

    Consecutive ones; the shares of all processes, in order, are all pieces, and differ
    in size by at most one.
    """
    process, processes = jax.process_index(), jax.process_count()
    return range(process * count // processes, (process + 1) * count // processes)


def exchange(mine: Sequence[T]) -> list[T]:
    """The sequences of all processes, one after the other, in every process.

    Objects travel pickled, between the processes of one run only. All must call it.
    """
    if jax.process_count() == 1:
        return list(mine)
    data = np.frombuffer(pickle.dumps(list(mine)), np.uint8)
    sizes = multihost_utils.process_allgather(np.array(data.size)).reshape(-1)
    padded = np.pad(data, (0, int(sizes.max()) - data.size))
    rows = multihost_utils.process_allgather(padded)
    parts = [
        pickle.loads(row[:n].tobytes()) for row, n in zip(rows, sizes, strict=True)
    ]
    return [piece for part in parts for piece in part]


def make_gather_fn(mesh: Mesh) -> Callable[[Any], Any]:
    """(arrays on the mesh) -> the same, each whole on this process's first device.

    For an engine or a file of this process. All processes must call what is returned,
    even if only one goes on with the result. In a single process it changes nothing.
    """
    if jax.process_count() == 1:
        return lambda tree: tree
    replicated = NamedSharding(mesh, PartitionSpec())
    gather = jax.jit(lambda tree: tree, out_shardings=replicated)

    def local(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.addressable_data(0), gather(tree))

    return local
