r"""Evaluates a model on held-out problems, with its tools and self-contained.

python -m launch.evaluate --config=configs/smollm2_math.py --config.eval.problems=50 \
    --modes=tools,self_contained --out=runs/eval.json --table=runs/eval.md
python -m launch.evaluate --compare=runs/before.json,runs/after.json
python -m launch.evaluate --config=configs/smollm2_math.py \
    --compare=runs/sft/model,runs/rl/model --out=runs/compared.json

Reports avg@k, unbiased pass@k and maj@k with 95% intervals over problems, the spread
of several runs, and calls, call success and response tokens, for every benchmark of
config.eval.benchmarks. The model is the config's: set another one with
--config.model.path=DIR. With --out, what is finished is kept in OUT.journals: the same
command, killed and started again, goes on from there.

--compare takes two result files, or two model directories to evaluate first, and gives
the paired difference with its interval and p-value.
"""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from absl import app, flags, logging

from agentic_jax.evaluation import benchmark, compare, suite, tables
from agentic_jax.recipe import build_rl
from launch import flags as shared

_CONFIG = shared.define_config("Recipe whose model and eval sections are used.")
_MODES = flags.DEFINE_list("modes", ["tools"], f"Any of {', '.join(suite.MODES)}.")
_BENCHMARKS = flags.DEFINE_list("benchmarks", [], "Only these; all if empty.")
_OUT = flags.DEFINE_string("out", None, "JSON file for the numbers; optional.")
_TABLE = flags.DEFINE_string("table", None, "Also a table, in .md, .csv or .tex.")
_COMPARE = flags.DEFINE_list("compare", [], "A,B: result files or model directories.")
flags.adopt_module_key_flags(shared)


def main(_: list[str]) -> None:
    """Evaluates, or compares, and prints one line for each result."""
    if _TABLE.value:
        tables.check_ending(pathlib.Path(_TABLE.value))
    if not _COMPARE.value:
        out = pathlib.Path(_OUT.value) if _OUT.value else None
        results = _evaluate(_CONFIG.value, out)
        _write_table(tables.result_rows(results))
        return
    if len(_COMPARE.value) != 2:
        raise app.UsageError(f"--compare takes two, A,B; it has {_COMPARE.value}")
    before, after = map(_results, map(pathlib.Path, _COMPARE.value))
    found = compare.compare_results(before, after, seed=0)
    for label, comparison in found.items():
        logging.info("%s: %s", label, comparison)
    if _OUT.value:
        _write_json(compare.comparison_json(found), pathlib.Path(_OUT.value))
    _write_table(tables.comparison_rows(found))


def _evaluate(config: Any, out: pathlib.Path | None) -> dict[str, dict]:
    """Evaluates the config's model; what `out` names gets the results so far."""
    if config is None:
        raise app.UsageError("--config is missing: it names the model and benchmarks")
    recipe = build_rl(config)
    results: dict[str, dict] = {}

    def keep(label: str, done: benchmark.Report) -> None:
        results[label] = benchmark.summary(done)
        logging.info("95%% intervals:\n%s", benchmark.table({label: done}))
        if out:
            _write_json(results, out)

    suite.evaluate_suite(
        recipe,
        recipe.model(),
        modes=_MODES.value,
        journals=out.with_name(f"{out.name}.journals") if out else None,
        names=_BENCHMARKS.value,
        on_report=keep,
    )
    return results


def _results(path: pathlib.Path) -> Mapping[str, Mapping]:
    """Of a result file, or of a model directory after evaluating it."""
    if not path.is_dir():
        return compare.read_results(path)
    config = _CONFIG.value
    if config is None or "path" not in config.model:
        raise app.UsageError(
            f"{path} is a directory: --config must name a recipe with model.path"
        )
    config = config.copy_and_resolve_references()
    config.model.path = str(path)
    if not _OUT.value:
        return _evaluate(config, None)
    out = pathlib.Path(_OUT.value)
    number = [pathlib.Path(p) for p in _COMPARE.value].index(path)
    return _evaluate(config, out.with_name(f"{out.stem}.{'AB'[number]}.json"))


def _write_json(value: Mapping, path: pathlib.Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")


def _write_table(rows: tables.Rows) -> None:
    if _TABLE.value:
        tables.write_table(rows, pathlib.Path(_TABLE.value))


if __name__ == "__main__":
    shared.run(main)
