r"""Says what a recipe takes on a machine that need not be there, before you pay for it.

python -m launch.plan --config=configs/demystify_grpo_tcr.py --topology=v5e:4x4 \
    --shape=qwen3_4b --json

Compiles the score and update steps of one micro-batch for those devices, with the real
TPU compiler (pip install libtpu) or for cpu:N virtual devices, and prints memory,
floating-point operations and what is sent on each device. No weights are read or made.
"""

import dataclasses
import importlib.util
import json
import os
import sys

from agentic_jax.scale.chips import parse_topology

_NAMES = [arg.split("=", 1)[1] for arg in sys.argv if arg.startswith("--topology=")]
if _NAMES:  # jax reads these when it is imported, long before flags are parsed.
    os.environ.update(parse_topology(_NAMES[-1]).environment)

import jax  # noqa: E402
from absl import flags  # noqa: E402
from jax.experimental import topologies  # noqa: E402

from agentic_jax.recipe import build_rl  # noqa: E402
from agentic_jax.scale.plan import make_plan  # noqa: E402
from agentic_jax.scale.report import json_numbers, summary, table  # noqa: E402
from agentic_jax.sources import lora_config, model_config  # noqa: E402
from launch import flags as shared  # noqa: E402

_CONFIG = shared.define_config("Recipe to plan for.")
_TOPOLOGY = flags.DEFINE_string(
    "topology", None, "v5e:4x4, v5p:2x2x1, v6e:4x4, ... or cpu:8 (with the = sign)."
)
_SHAPE = flags.DEFINE_string(
    "shape", None, "A model of models.shapes in place of the config's, run as it is."
)
_JSON = flags.DEFINE_bool("json", False, "Ends with the numbers as one JSON line.")
flags.adopt_module_key_flags(shared)


def main(_: list[str]) -> None:
    """Plans and prints."""
    if not _NAMES:
        raise ValueError("give the topology as --topology=NAME, with the = sign")
    topology = parse_topology(_TOPOLOGY.value)
    jax.config.update("jax_enable_compilation_cache", False)  # It is timed.
    recipe = build_rl(_CONFIG.value)
    spec = dict(recipe.config["model"])
    adapters = lora_config(spec.pop("lora", None))
    if _SHAPE.value:
        spec.pop("path", None)
        spec |= {"name": "shape", "shape": _SHAPE.value}
    model = dataclasses.replace(model_config(spec), lora=adapters)
    plan = make_plan(recipe, model, topology, _devices(topology))
    print(table(plan))
    if _JSON.value:
        print(json.dumps(json_numbers(summary(plan))))


def _devices(topology):
    if topology.kind == "cpu":
        return jax.devices()
    if importlib.util.find_spec("libtpu") is None:
        raise ValueError("the TPU compiler is missing: pip install 'agentic_jax[plan]'")
    description = topologies.get_topology_desc(
        platform="tpu", topology_name=topology.name
    )
    return description.devices


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "topology"])
    shared.run(main)
