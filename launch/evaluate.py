r"""Evaluates a model on held-out problems, with its tools and self-contained.

python -m launch.evaluate --config=configs/smollm2_math.py --config.eval.problems=50 \
    --modes=tools,self_contained --out=runs/eval.json

Reports avg@k, unbiased pass@k and maj@k with 95% intervals over problems, and
calls, call success and response tokens. The model is the config's: set another one with
--config.model.path=DIR.
"""

import json
import pathlib

from absl import flags, logging

from agentic_jax.evaluation import benchmark
from agentic_jax.recipe import build_rl
from launch import flags as shared

MODES = ("tools", "self_contained")
_CONFIG = shared.define_config("Recipe whose model and eval sections are used.")
_MODES = flags.DEFINE_list("modes", ["tools"], f"Any of {', '.join(MODES)}.")
_OUT = flags.DEFINE_string("out", None, "JSON file for the numbers; optional.")
flags.adopt_module_key_flags(shared)


def main(_: list[str]) -> None:
    """Evaluates each mode and prints one line for it."""
    unknown = [mode for mode in _MODES.value if mode not in MODES]
    if unknown:
        raise ValueError(f"unknown modes {unknown}; known: {', '.join(MODES)}")
    recipe = build_rl(_CONFIG.value)
    model = recipe.model()
    reports = {
        mode: benchmark.evaluate_model(
            recipe, model, model.params, with_tools=mode == "tools"
        )
        for mode in _MODES.value
    }
    logging.info("95%% intervals over problems:\n%s", benchmark.table(reports))
    if _OUT.value:
        numbers = {mode: benchmark.summary(r) for mode, r in reports.items()}
        path = pathlib.Path(_OUT.value)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(numbers, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    flags.mark_flags_as_required(["config"])
    shared.run(main)
