"""Entry points, run as python -m launch.NAME."""

import glob
import os

_ACCELERATORS = ("accel*", "vfio/*", "nvidia*", "dxg", "kfd")  # Of TPUs and GPUs.

# transformers would otherwise start by saying that it found no PyTorch: none is needed.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
if not any(glob.glob(f"/dev/{name}") for name in _ACCELERATORS):
    # The TPU compiler, where it is installed, would otherwise look for a TPU, complain
    # that there is none, and crash jax's profiler.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
