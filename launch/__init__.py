"""Entry points, run as python -m launch.NAME."""

import glob
import os

# transformers would otherwise start by saying that it found no PyTorch: none is needed.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
if not glob.glob("/dev/accel*") and not glob.glob("/dev/vfio/*"):
    # The TPU compiler, where it is installed, would otherwise complain that there is
    # no TPU; launch.plan sets these for itself.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-1")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
