r"""Trains a policy with agentic RL, or goes on with the run that stands in the workdir.

python -m launch.train_rl --config=configs/quickstart.py:tiny --workdir=runs/tiny
python -m launch.train_rl --config=configs/quickstart.py:tiny --workdir=runs/tiny \
    --config.num_steps=4

Any value of the config can be set as --config.KEY=VALUE. The workdir gets config.json,
checkpoints/, metrics.jsonl, tensorboard/ and trajectories/step_NNNNNN.jsonl.
"""

import pathlib

from absl import flags, logging

from agentic_jax.recipe import build_rl
from agentic_jax.training import rl
from agentic_jax.training.sft import save_model
from launch import flags as shared

_CONFIG = shared.define_config("Recipe, such as configs/quickstart.py or FILE:tiny.")
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Checkpoints, metrics and trajectories; resumed if it has any."
)
flags.adopt_module_key_flags(shared)


def main(_: list[str]) -> None:
    """Builds, trains, and writes the final model as a Hugging Face directory."""
    recipe = build_rl(_CONFIG.value)
    workdir = pathlib.Path(_WORKDIR.value)
    model, params = rl.train(recipe, workdir=workdir)
    save_model(model, params, workdir / "model")
    logging.info("done: the model is in %s", workdir / "model")


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "workdir"])
    shared.run(main)
