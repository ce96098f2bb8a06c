r"""Trains a policy with agentic RL, or goes on with the run that stands in the workdir.

python -m launch.train_rl --config=configs/quickstart.py:tiny --workdir=runs/tiny
python -m launch.train_rl --config=configs/quickstart.py:tiny --workdir=runs/tiny \
    --config.num_steps=4 --profile_steps=3

Several processes, here two on one machine; --coordinator=auto on TPU pods, Slurm, MPI:

python -m launch.train_rl --config=FILE --workdir=DIR \
    --coordinator=localhost:1234 --num_processes=2 --process_id=0   # and =1

Any value of the config can be set as --config.KEY=VALUE. The workdir gets config.json,
checkpoints/, metrics.jsonl, tensorboard/ and trajectories/step_NNNNNN.jsonl.
"""

import pathlib

from absl import flags, logging

from agentic_jax.recipe import build_rl
from agentic_jax.training import processes, rl
from agentic_jax.training.sft import save_model
from launch import flags as shared

_CONFIG = shared.define_config("Recipe, such as configs/quickstart.py or FILE:tiny.")
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Checkpoints, metrics and trajectories; resumed if it has any."
)
_PROFILE = flags.DEFINE_list(
    "profile_steps", [], "Steps to profile into workdir/profile, such as 3,4."
)
_COORDINATOR = flags.DEFINE_string(
    "coordinator", "", "host:port of process 0, or auto; empty is a single process."
)
_PROCESSES = flags.DEFINE_integer("num_processes", 1, "Processes of the run.")
_PROCESS = flags.DEFINE_integer("process_id", 0, "Which of them this is, from 0.")
flags.adopt_module_key_flags(shared)


def main(_: list[str]) -> None:
    """Builds, trains, and writes the final model as a Hugging Face directory."""
    recipe = build_rl(_CONFIG.value)
    workdir = pathlib.Path(_WORKDIR.value)
    with processes.joined(
        coordinator=_COORDINATOR.value,
        num_processes=_PROCESSES.value,
        process_id=_PROCESS.value,
    ):
        steps = [int(step) for step in _PROFILE.value]
        model, params = rl.train(recipe, workdir=workdir, profile_steps=steps)
        if processes.is_writer():
            save_model(model, params, workdir / "model")
            logging.info("done: the model is in %s", workdir / "model")


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "workdir"])
    shared.run(main)
