r"""Makes SFT trajectories: a scripted teacher solves word problems with the real tool.

python -m launch.teacher --config=configs/smollm2_math_sft.py --count=64 \
    --out=runs/smollm2/teacher.jsonl

Some turns use the tool, some answer at once, some make a call that fails and mend it;
every call is really run, and only trajectories that come out right are kept.
"""

import pathlib

from absl import flags

from agentic_jax.curation import FRACTIONS, write_teacher_trajectories
from agentic_jax.data.word_problems import TEACHER_MODES
from agentic_jax.recipe import build_sft
from launch import flags as shared

_CONFIG = shared.define_config("SFT recipe that will train on the trajectories.")
_COUNT = flags.DEFINE_integer("count", 64, "Problems.", lower_bound=1)
_DIGITS = flags.DEFINE_list("digits", ["2", "3"], "Of the two factors.")
_FRACTIONS = flags.DEFINE_list(
    "fractions", [str(f) for f in FRACTIONS], f"Of {', '.join(TEACHER_MODES)}."
)
_OUT = flags.DEFINE_string("out", None, "JSONL file of trajectories.")
flags.adopt_module_key_flags(shared)


def main(_: list[str]) -> None:
    """Plays and writes."""
    write_teacher_trajectories(
        build_sft(_CONFIG.value),
        pathlib.Path(_OUT.value),
        count=_COUNT.value,
        digits=[int(n) for n in _DIGITS.value],
        fractions=[float(f) for f in _FRACTIONS.value],
    )


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "out"])
    shared.run(main)
