r"""Trains a policy on given trajectories, or goes on with the run in the workdir.

python -m launch.train_sft --config=configs/quickstart_sft.py --workdir=runs/sft \
    --config.trajectories=runs/data/teacher.jsonl

Only tokens that a policy (or teacher) sampled are trained; tool results and prompts are
not. The workdir gets config.json, checkpoints/, metrics.jsonl, tensorboard/ and model/,
a Hugging Face directory.
"""

from absl import flags, logging

from agentic_jax.recipe import build_sft
from agentic_jax.training import sft
from launch import flags as shared

_CONFIG = shared.define_config("Recipe, such as configs/quickstart_sft.py.")
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Checkpoints, metrics and the model; resumed if it has any."
)
flags.adopt_module_key_flags(shared)


def main(_: list[str]) -> None:
    """Builds and trains."""
    sft.train(build_sft(_CONFIG.value), workdir=_WORKDIR.value)
    logging.info("done: the model is in %s/model", _WORKDIR.value)


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "workdir"])
    shared.run(main)
