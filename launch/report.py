r"""Builds an offline page of one or several runs, finished or running.

python -m launch.report --workdir=runs/quickstart/rl
python -m launch.report --workdir=runs/a/rl,runs/b/rl --out=runs/compare --serve

Opens in any browser as OUT/index.html; nothing is fetched from a network. Run again, it
adds only the steps that are new. --serve builds each step when it is looked at, and the
page follows a running run.
"""

import asyncio
import contextlib
import pathlib

from absl import flags, logging

from agentic_jax.monitor.progress import progress
from agentic_jax.monitor.trace import trace_steps
from agentic_jax.report.build import build_report, open_runs
from agentic_jax.report.server import HOST, serve
from launch import flags as shared

_WORKDIR = flags.DEFINE_list("workdir", None, "Workdirs of runs; the first one leads.")
_OUT = flags.DEFINE_string(
    "out", None, "Folder of the page; the default is in the first workdir: report."
)
_SERVE = flags.DEFINE_bool("serve", False, f"Serve it on {HOST} instead.")
_PORT = flags.DEFINE_integer("port", 8010, "Of --serve.", lower_bound=1)
flags.adopt_module_key_flags(shared)


def main(_: list[str]) -> None:
    """Builds or serves the report, and says where it is."""
    runs = open_runs(_WORKDIR.value)
    out = pathlib.Path(_OUT.value) if _OUT.value else runs[0].workdir / "report"
    if _SERVE.value:
        print(f"http://{HOST}:{_PORT.value}/  (Ctrl-C ends it)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve(runs, out, port=_PORT.value))
        return
    steps = sum(len(trace_steps(run.workdir)) for run in runs)
    with progress("report", steps, unit="step") as advance:
        built = build_report(runs, out, on_step=advance)
    logging.info("built %d of %d steps", built, steps)
    print(out.absolute() / "index.html")


if __name__ == "__main__":
    flags.mark_flags_as_required(["workdir"])
    shared.run(main)
