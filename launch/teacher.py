r"""Makes SFT trajectories: a scripted teacher solves word problems with the real tool.

python -m launch.teacher --config=configs/smollm2_math_sft.py --count=64 \
    --out=runs/smollm2/teacher.jsonl

Some turns use the tool, some answer at once, some make a call that fails and mend it;
every call is really run, and only trajectories that come out right are kept.
"""

import asyncio
import pathlib
from collections.abc import Sequence

import numpy as np
from absl import flags, logging

from agentic_jax.data.teacher import mixed_modes, play_teacher, write_trajectories
from agentic_jax.data.word_problems import TEACHER_MODES, teacher_turns, word_problems
from agentic_jax.monitor.progress import progress
from agentic_jax.recipe import Recipe, build_sft
from agentic_jax.rollout.episode import Limits
from agentic_jax.services import open_services
from launch import flags as shared

FRACTIONS = (0.4, 0.45, 0.15)  # Of TEACHER_MODES: tool, direct, recovery.
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
    write(
        build_sft(_CONFIG.value),
        pathlib.Path(_OUT.value),
        count=_COUNT.value,
        digits=[int(n) for n in _DIGITS.value],
        fractions=[float(f) for f in _FRACTIONS.value],
    )


def write(
    recipe: Recipe,
    path: pathlib.Path,
    *,
    count: int,
    digits: Sequence[int],
    fractions: Sequence[float] = FRACTIONS,
) -> None:
    """Plays the teacher over `count` training problems; writes what came out right."""
    right = asyncio.run(_play(recipe, count, digits, fractions))
    logging.info("the teacher got %d of %d right; these are kept", len(right), count)
    write_trajectories(path, right)


async def _play(recipe, count, digits, fractions):
    seed, rollout = recipe.config["seed"], recipe.config["rollout"]
    rng = np.random.default_rng([seed, 3])
    tasks = word_problems(split="train", count=count, seed=seed, digits=digits)
    modes = mixed_modes(count, dict(zip(TEACHER_MODES, fractions, strict=True)), rng)
    turns = {t.id: teacher_turns(t, m, rng) for t, m in zip(tasks, modes, strict=True)}
    model = recipe.model()
    async with open_services(recipe, model, params=model.params) as services:
        with progress("teacher", count, unit="trajectory") as advance:
            played = await play_teacher(
                [services.with_system(task) for task in tasks],
                turns,
                chat=services.chat,
                tools=services.tools,
                limits=Limits(
                    rollout["max_prompt_tokens"],
                    rollout["max_response_tokens"],
                    rollout["max_turns"],
                ),
                concurrency=rollout["concurrency"],
                on_done=lambda trajectory: advance(1),
            )
        scored = [await services.verify(trajectory) for trajectory in played]
    return [t for t in scored if t.stop == "answer" and t.score == 1.0]


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "out"])
    shared.run(main)
