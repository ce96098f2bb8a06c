r"""Makes training data from rollouts; killed in the middle, it goes on.

python -m launch.curate sft --config=configs/quickstart.py --out=runs/sft_data
python -m launch.curate stitched --config=configs/quickstart.py --out=runs/stitched
python -m launch.curate rl --config=configs/quickstart.py --out=runs/rl_data \
    --curation.rl.samples=8

sft: a teacher's trajectories with really run tools, filtered, in trajectories.jsonl.
stitched: the baseline whose calls are put into finished solutions and never run.
rl: problems that the policy solves sometimes, with rate and bin, in problems.jsonl.

The recipe is that of an RL run; its model and engine are the teacher, or the policy.
Options are in configs/curation/default.py; --curation=FILE.py takes others.
"""

import functools
import pathlib
import sys

from absl import app, flags, logging
from ml_collections import config_flags

from agentic_jax.curation.rl import curate_rl
from agentic_jax.curation.sft import curate_sft, curate_stitched
from agentic_jax.recipe import build_rl
from launch import flags as shared

COMMANDS = {"sft": curate_sft, "stitched": curate_stitched, "rl": curate_rl}
_DEFAULT = pathlib.Path(__file__).parent.parent / "configs" / "curation" / "default.py"
_CONFIG = shared.define_config("Recipe whose model, engine, tools and tasks are used.")
_CURATION = config_flags.DEFINE_config_file(
    "curation", str(_DEFAULT), "Options; overrides as for --config.", lock_config=True
)
_OUT = flags.DEFINE_string("out", None, "Directory of the data; resumed if it has any.")
flags.adopt_module_key_flags(shared)


def main(command: str, _: list[str]) -> None:
    """Curates and says what came of it."""
    if command not in COMMANDS:
        raise app.UsageError(
            f"the first argument is one of {', '.join(COMMANDS)}, not {command!r}"
        )
    section = "rl" if command == "rl" else "sft"
    options = _CURATION.value[section].to_dict()
    summary = COMMANDS[command](
        build_rl(_CONFIG.value), pathlib.Path(_OUT.value), options
    )
    lines = "\n".join(f"  {key}: {value}" for key, value in summary.items())
    logging.info("%s/summary.json:\n%s", _OUT.value, lines)


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "out"])
    word = sys.argv.pop(1) if sys.argv[1:] and sys.argv[1][:1] != "-" else ""
    shared.run(functools.partial(main, word))
