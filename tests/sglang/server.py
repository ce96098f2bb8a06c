"""A real SGLang server on a CPU, run by the Python of an environment of its own.

python tests/sglang/server.py --model-path DIR --port PORT [more of SGLang's flags]
"""

import os
import sys

os.environ |= {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",  # More threads only wait for one another on few cores.
    "SGLANG_USE_CPU_ENGINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}

import torch  # noqa: E402

# PyPI's torchvision is built for CUDA, so beside a CPU torch its operators are missing
# and it fails to import. SGLang imports it for images only: a declaration is enough.
# SGLang's worker processes import this file too, and so declare the same.
OPERATORS = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    OPERATORS.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")

FLAGS = [
    "--host=127.0.0.1",
    "--device=cpu",
    "--dtype=float32",
    "--attention-backend=torch_native",
    "--sampling-backend=pytorch",
    "--grammar-backend=none",
    "--max-running-requests=32",
    "--disable-overlap-schedule",
    "--sleep-on-idle",
    "--skip-server-warmup",
    "--enable-metrics",
]

if __name__ == "__main__":
    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args

    run_server(prepare_server_args([*FLAGS, *sys.argv[1:]]))
