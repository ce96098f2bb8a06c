r"""Runs a recipe for each seed and setting, one run after the other, and sums them up.

python -m launch.sweep --config=configs/quickstart.py --seeds=5 --out=runs/clip \
    --grid='surrogate.eps_high=0.2,0.28;kl_coef=0.0'

A grid is KEY=VALUE,VALUE,...;KEY=VALUE,...: every combination is an arm, the first one
the baseline. What differs in more than one key goes into the config file, as variants
(`--config=FILE.py --variants=a,b`). "{seed}" inside a text value becomes the seed. SFT
recipes can be swept as well.

Each run is an ordinary run in OUT/ARM/seed_N. The same command again goes on: finished
runs are skipped, a killed one resumes from its checkpoint, and more seeds or values add
runs. OUT gets summary.json and summary.csv: the mean of every metric over seeds with
95% t intervals, and its paired difference from the baseline arm.
"""

import pathlib

import jax
from absl import flags, logging

from agentic_jax import sweep
from launch import flags as shared

_CONFIG = flags.DEFINE_string("config", None, "Recipe: FILE.py or FILE.py:variant.")
_VARIANTS = flags.DEFINE_list("variants", [], "Variants of FILE.py, one arm each.")
_GRID = flags.DEFINE_string(
    "grid", "", "KEY=VALUE,...;KEY=VALUE,...; a key with one value is set in all arms."
)
_SEEDS = flags.DEFINE_integer("seeds", 5, "Seeds 0, 1, ... of each arm.", lower_bound=1)
_SEED_KEYS = flags.DEFINE_list("seed_keys", ["seed"], "Config keys that get the seed.")
_OUT = flags.DEFINE_string("out", None, "Directory of the runs and the summary.")
_LAST = flags.DEFINE_integer(
    "last", 5, "Steps at the end of a run whose mean is its result.", lower_bound=1
)
_METRICS = flags.DEFINE_list(
    "metrics",
    ["reward/score_mean", "tool/calls_mean", "sft/loss"],
    "What is printed; the files have every metric.",
)


def main(_: list[str]) -> None:
    """Builds every run before the first one starts."""
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    out, seeds = pathlib.Path(_OUT.value), range(_SEEDS.value)
    arms = sweep.arms_of(_CONFIG.value, variants=_VARIANTS.value, grid=_GRID.value)
    recipes = {
        (arm, seed): sweep.build(sweep.seeded(config, seed, keys=_SEED_KEYS.value))
        for seed in seeds
        for arm, config in arms.items()
    }
    failed = []
    for number, ((arm, seed), recipe) in enumerate(recipes.items(), start=1):
        workdir = out / arm / f"seed_{seed}"
        logging.info("run %d of %d: %s", number, len(recipes), workdir)
        if sweep.is_finished(workdir, recipe):
            continue
        try:
            sweep.train(recipe, workdir)
        except shared.USER_ERRORS as error:
            logging.error("%s failed: %s", workdir, error)
            failed.append(str(workdir))
        sweep.write_summary(out, list(arms), seeds=seeds, last=_LAST.value)
    summary = sweep.write_summary(out, list(arms), seeds=seeds, last=_LAST.value)
    print(sweep.table(summary, metrics=_METRICS.value))
    if failed:
        raise RuntimeError(
            f"{len(failed)} of {len(recipes)} runs failed and are not in the summary; "
            f"mend them and run the same command: {', '.join(failed)}"
        )


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "out"])
    shared.run(main)
