r"""Writes a checkpoint of a run as a model that transformers, PEFT and servers load.

python -m launch.export_model --workdir=runs/quickstart/rl --out=runs/step10 \
    --step=10 --dtype=bfloat16
python -m launch.export_model --workdir=runs/lora --out=runs/lora/adapter --adapter

Works while the run goes on, and on one device whatever its mesh. Adapters are merged
into the weights, or with --adapter written alone, as PEFT has them.
"""

import pathlib

from absl import flags

from agentic_jax.training.export import export_model
from launch import flags as shared

_WORKDIR = flags.DEFINE_string("workdir", None, "Of an RL or SFT run.")
_OUT = flags.DEFINE_string("out", None, "Directory to write; it must not exist yet.")
_STEP = flags.DEFINE_integer("step", None, "Of the checkpoint; the newest by default.")
_ADAPTER = flags.DEFINE_bool("adapter", False, "Writes the adapter alone, for PEFT.")
_DTYPE = flags.DEFINE_string("dtype", None, "Of the weights; float32 by default.")
flags.adopt_module_key_flags(shared)


def main(_: list[str]) -> None:
    """Exports, and says what and where."""
    out = pathlib.Path(_OUT.value)
    step = export_model(
        pathlib.Path(_WORKDIR.value),
        out,
        step=_STEP.value,
        adapter=_ADAPTER.value,
        dtype=_DTYPE.value,
    )
    print(f"step {step} is in {out}")


if __name__ == "__main__":
    flags.mark_flags_as_required(["workdir", "out"])
    shared.run(main)
