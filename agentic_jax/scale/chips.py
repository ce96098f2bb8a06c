"""Topologies by name, and what is published of their chips. Imports no jax."""

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Chip:
    """What one device has.

    Attributes:
        memory_bytes: of the device.
        flops_per_s: bfloat16 matrix products at peak; None is not known.
        memory_bytes_per_s: between the device and its memory; None is not known.
        link_bytes_per_s: that it can send to its neighbours in all; None is not known.
    """

    memory_bytes: float
    flops_per_s: float | None = None
    memory_bytes_per_s: float | None = None
    link_bytes_per_s: float | None = None


# Google Cloud's "System architecture" page of each version: HBM capacity, peak bf16
# compute, HBM bandwidth, and interchip bandwidth in one direction.
TPUS: Mapping[str, Chip] = {
    "v5e": Chip(16e9, 197e12, 819e9, 200e9),
    "v5p": Chip(95e9, 459e12, 2_765e9, 600e9),
    "v6e": Chip(32e9, 918e12, 1_640e9, 400e9),
}

# By jax's device_kind, of one device: bfloat16 products at peak, without sparsity; GPUs
# as in NVIDIA's data sheets.
PEAK_FLOPS_PER_S: Mapping[str, float] = {
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5": 459e12,
    "TPU v5p": 459e12,
    "TPU v6 lite": 918e12,
    "TPU v6e": 918e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA H100 80GB HBM3": 989e12,
    "NVIDIA H200": 989e12,
}

_TYPES = {"v5e": "v5litepod-16", "v5p": "v5p-8", "v6e": "v6e-8"}


@dataclass(frozen=True)
class Topology:
    """Devices of one kind: "v5e:4x4" is 16 of TPUS, "cpu:8" is 8 virtual devices.

    Attributes:
        kind: a key of TPUS, or "cpu".
        shape: "4x4", or the number of virtual devices.
    """

    kind: str
    shape: str

    @property
    def name(self) -> str:
        """KIND:SHAPE."""
        return f"{self.kind}:{self.shape}"

    @property
    def chip(self) -> Chip:
        """One of its devices; virtual ones share this machine's memory evenly."""
        if self.kind != "cpu":
            return TPUS[self.kind]
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        return Chip(pages * size / int(self.shape))

    @property
    def environment(self) -> dict[str, str]:
        """Variables to set before jax is imported."""
        if self.kind == "cpu":
            flag = f"--xla_force_host_platform_device_count={self.shape}"
            flags = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()
            return {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
        return {
            "JAX_PLATFORMS": "cpu",  # Compiled for TPUs, from a machine without one.
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_ACCELERATOR_TYPE": _TYPES[self.kind],  # Asked for, and not used.
            "TPU_WORKER_HOSTNAMES": "localhost",  # Likewise.
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        }


def parse_topology(name: str) -> Topology:
    """The topology of that name.

    Raises:
        ValueError: another kind, or a shape that is not numbers joined by x.
    """
    kind, _, shape = name.partition(":")
    sizes = shape.split("x")
    if kind not in (*TPUS, "cpu") or not all(size.isdecimal() for size in sizes):
        raise ValueError(
            f"topology {name!r} is not known; give v5e:4x4, v6e:4x4, v5p:2x2x1 (chips "
            "along each side: v5p-8 has 8 cores and so 4 chips) or cpu:8"
        )
    if kind == "cpu" and len(sizes) != 1:
        raise ValueError(f"topology {name!r}: virtual devices have one number, cpu:8")
    return Topology(kind, shape)
