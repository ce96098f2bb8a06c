"""A tool-using policy from nothing in minutes, on a laptop CPU and offline.

python -m launch.quickstart --workdir=runs/quickstart --seed=0

Makes word problems, lets a scripted teacher solve some of them with real tool calls,
trains a small Qwen3 on that from scratch, then lets GRPO-TCR find out by itself that
the tool pays. Run again, it goes on where it was stopped. summary.json has the numbers.
"""

import asyncio
import json
import pathlib
import time

import numpy as np
from absl import flags, logging

from agentic_jax.data.teacher import mixed_modes, play_teacher, write_trajectories
from agentic_jax.data.word_problems import teacher_turns, word_problems
from agentic_jax.evaluation import benchmark
from agentic_jax.monitor.clock import cpu_seconds, peak_rss_mb
from agentic_jax.monitor.progress import progress
from agentic_jax.recipe import Recipe, build_rl, build_sft
from agentic_jax.rollout.episode import Limits
from agentic_jax.services import open_services
from agentic_jax.training import rl, sft
from configs import quickstart, quickstart_sft
from launch import flags as shared

TEACHER_FRACTIONS = {"tool": 0.37, "direct": 0.5, "recovery": 0.13}
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
        asyncio.run(_write_teacher(sft_recipe, teacher_file, seed=_SEED.value))
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


async def _write_teacher(recipe: Recipe, path: pathlib.Path, *, seed: int) -> None:
    """Plays the teacher over training problems and keeps what came out right."""
    config, rng = recipe.config, np.random.default_rng([seed, 3])
    count = 100 * config["trajectories_per_step"]
    tasks = word_problems(split="train", count=count, seed=seed)
    modes = mixed_modes(count, TEACHER_FRACTIONS, rng)
    turns = {t.id: teacher_turns(t, m, rng) for t, m in zip(tasks, modes, strict=True)}
    rollout, model = config["rollout"], recipe.model()
    async with open_services(recipe, model, params=model.params) as services:
        with progress("teacher", count, unit="trajectory") as advance:
            played = await play_teacher(
                tasks,
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
        scored = [await services.verify(t) for t in played]
    right = [t for t in scored if t.stop == "answer" and t.score == 1.0]
    logging.info("the teacher got %d of %d right; these are kept", len(right), count)
    write_trajectories(path, right)


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
  {workdir}/model/                       the policy, a Hugging Face directory"""


if __name__ == "__main__":
    shared.run(main)
