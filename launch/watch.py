"""Shows a running run in the terminal, until its last step.

python -m launch.watch --workdir=runs/quickstart/rl

Reads the run's files only, so it may be started and ended at any time, here or wherever
the workdir is mounted. Where its output is no terminal, it prints one line a step.
"""

import contextlib
import pathlib

from absl import flags
from rich.console import Console

from agentic_jax.monitor.terminal import watch
from launch import flags as shared

_WORKDIR = flags.DEFINE_string("workdir", None, "Workdir of a run.")
_SECONDS = flags.DEFINE_float("seconds", 2.0, "Between looks.", lower_bound=0.1)
flags.adopt_module_key_flags(shared)


def main(_: list[str]) -> None:
    """Watches until the run is over or Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt):
        watch(pathlib.Path(_WORKDIR.value), console=Console(), seconds=_SECONDS.value)


if __name__ == "__main__":
    flags.mark_flags_as_required(["workdir"])
    shared.run(main)
