"""Writes a run's metrics, trajectories and tool calls as Parquet tables.

python -m launch.export --workdir=runs/quickstart/rl --out=runs/quickstart/tables

    calls = pandas.read_parquet("runs/quickstart/tables/calls.parquet")
    calls.groupby("step").status.value_counts()
"""

import pathlib

from absl import flags

from agentic_jax.monitor.export import export_parquet
from launch import flags as shared

_WORKDIR = flags.DEFINE_string("workdir", None, "Workdir of a run.")
_OUT = flags.DEFINE_string("out", None, "Folder for the tables.")
flags.adopt_module_key_flags(shared)


def main(_: list[str]) -> None:
    """Exports, and says where to."""
    out = pathlib.Path(_OUT.value)
    export_parquet(pathlib.Path(_WORKDIR.value), out)
    print(*sorted(out.glob("*.parquet")), sep="\n")


if __name__ == "__main__":
    flags.mark_flags_as_required(["workdir", "out"])
    shared.run(main)
