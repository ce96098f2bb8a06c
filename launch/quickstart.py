"""A tool-using policy from nothing in minutes, on a laptop CPU and offline.

python -m launch.quickstart --workdir=runs/quickstart --seed=0

Makes word problems, lets a scripted teacher solve some of them with real tool calls,
trains a small Qwen3 on that from scratch, then lets GRPO-TCR find out by itself that
the tool pays. Run again, it goes on where it was stopped. summary.json has the numbers.
"""

import json
import os
import pathlib
import sys
import time

from absl import flags, logging

from agentic_jax.curation import write_teacher_trajectories
from agentic_jax.evaluation import benchmark
from agentic_jax.monitor.clock import cpu_seconds, peak_rss_mb
from agentic_jax.recipe import Recipe, build_rl, build_sft
from agentic_jax.training import rl, sft
from configs import quickstart, quickstart_sft
from launch import flags as shared

_WORKDIR = flags.DEFINE_string("workdir", "runs/quickstart", "Everything goes there.")
_SEED = flags.DEFINE_integer("seed", 0, "Of weights, problems and sampling.")
_SIZE = flags.DEFINE_enum(
    "size", "small", ["small", "tiny"], "tiny only shows it runs."
)


def main(_: list[str]) -> None:
    """The five phases."""
    start = time.monotonic()
    workdir = pathlib.Path(_WORKDIR.value)
    sft_recipe, rl_recipe = _recipes(workdir, seed=_SEED.value, size=_SIZE.value)
    teacher_file = pathlib.Path(sft_recipe.config["trajectories"])
    if not teacher_file.exists():
        logging.info("1/5 the teacher solves problems with the tool")
        count = 125 * sft_recipe.config["trajectories_per_step"]
        write_teacher_trajectories(sft_recipe, teacher_file, count=count, digits=(2, 2))
    logging.info("2/5 supervised training from scratch")
    sft.train(sft_recipe, workdir=workdir / "sft")
    logging.info("3/5 evaluation before RL")
    before = _evaluated(rl_recipe, None)
    logging.info("4/5 GRPO-TCR")
    model, params = rl.train(rl_recipe, workdir=workdir / "rl")
    sft.save_model(model, params, workdir / "model")
    logging.info("5/5 evaluation after RL")
    after = benchmark.evaluate_model(rl_recipe, model, params)
    numbers = {
        "before": benchmark.summary(before),
        "after": benchmark.summary(after),
        "problems": after.problems,
        "seconds": time.monotonic() - start,
        "cpu_seconds": cpu_seconds(),
        "seed": _SEED.value,
        "peak_rss_mb": peak_rss_mb(),
    }
    path = workdir / "summary.json"
    path.write_text(json.dumps(numbers, indent=2) + "\n", "utf-8")
    table = benchmark.table({"before RL": before, "after RL": after})
    logging.info("held-out problems, 95%% intervals:\n%s", table)
    print(_where_to_look(workdir))


def _recipes(workdir: pathlib.Path, *, seed: int, size: str) -> tuple[Recipe, Recipe]:
    sft_config = quickstart_sft.get_config(size)
    sft_config.seed = sft_config.model.seed = seed
    sft_config.trajectories = str(workdir / "data" / "teacher.jsonl")
    rl_config = quickstart.get_config(size)
    rl_config.seed = rl_config.tasks.seed = rl_config.eval_tasks.seed = seed
    if size == "small":
        rl_config.model.path = str(workdir / "sft" / "model")
    return build_sft(sft_config), build_rl(rl_config)


def _evaluated(recipe: Recipe, params) -> benchmark.Report:
    model = recipe.model()
    return benchmark.evaluate_model(recipe, model, params or model.params)


def _where_to_look(workdir: pathlib.Path) -> str:
    return f"""
Look at:
  {workdir}/summary.json                 accuracy before and after, with intervals
  {workdir}/rl/metrics.jsonl             one row a step; see it with tensorboard
  {workdir}/rl/trajectories/             every sampled token with its numbers
  {workdir}/rl/config.json               what was run
  {workdir}/model/                       the policy, a Hugging Face directory
or from the curve to the token, in a browser:
  {os.path.relpath(sys.executable)} -m launch.report --workdir={workdir}/rl"""


if __name__ == "__main__":
    shared.run(main)
