r"""Asks a judge which calls of a run were useful, and what they did to the entropy.

python -m launch.judge_calls --workdir=runs/rl --url=http://127.0.0.1:30000 \
    --model=judge --out=runs/rl/calls.md

Reads the trajectories of the last step that the run traced, or of --step. The judge is
any server with /v1/chat/completions; verdicts are kept in OUT.jsonl, so that a second
call asks for none twice.
"""

import asyncio
import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Sequence

from absl import flags, logging

from agentic_jax.evaluation.pilot import TracedCall, quality_rows, traced_calls
from agentic_jax.evaluation.tables import check_ending, markdown, write_table
from agentic_jax.journal import Journal
from agentic_jax.monitor.trace import read_trace, trace_path, trace_steps
from agentic_jax.rewards.judge import judge_call
from launch import flags as shared

_WORKDIR = flags.DEFINE_string("workdir", None, "Of an RL run.")
_STEP = flags.DEFINE_integer("step", None, "Whose trajectories; the last traced one.")
_URL = flags.DEFINE_string("url", None, "Of the judge's server.")
_MODEL = flags.DEFINE_string("model", "judge", "Name that the server knows it by.")
_OUT = flags.DEFINE_string("out", None, "Table, in .md, .csv or .tex.")
_TIMEOUT = flags.DEFINE_float("timeout", 60.0, "Seconds of one request.")
_MAX_TOKENS = flags.DEFINE_integer("max_tokens", 1_024, "Of one reply.")
_CONCURRENCY = flags.DEFINE_integer("concurrency", 16, "Most requests under way.")


def main(_: list[str]) -> None:
    """Judges every call and writes the table."""
    out = pathlib.Path(_OUT.value)
    check_ending(out)
    steps = trace_steps(pathlib.Path(_WORKDIR.value))
    step = _STEP.value if _STEP.value is not None else max(steps, default=None)
    if step not in steps:
        raise ValueError(f"{_WORKDIR.value} has no trajectories of step {step}")
    rows = read_trace(trace_path(pathlib.Path(_WORKDIR.value), step))
    calls = list(traced_calls(rows))
    journal = Journal(out.with_name(f"{out.name}.jsonl"), _identity(calls))
    try:
        asyncio.run(_judge(calls, journal))
        useful = [journal.read((i,)) for i in range(len(calls))]
    finally:
        journal.close()
    table = quality_rows(calls, useful, seed=0)
    write_table(table, out)
    logging.info("step %d, entropy change in nats:\n%s", step, markdown(table))


def _identity(calls: Sequence[TracedCall]) -> dict[str, str]:
    """What verdicts depend on."""
    text = json.dumps([dataclasses.asdict(call) for call in calls])
    return {
        "calls": hashlib.sha256(text.encode()).hexdigest(),
        "judge": _MODEL.value,
    }


async def _judge(calls: Sequence[TracedCall], journal: Journal) -> None:
    """Adds the verdict of each call that the journal lacks."""
    slots = asyncio.Semaphore(_CONCURRENCY.value)

    async def one(number: int, call: TracedCall) -> None:
        async with slots:
            verdict = await judge_call(
                question=call.question,
                before=call.before,
                call=call.call,
                result=call.result,
                url=_URL.value,
                model=_MODEL.value,
                timeout=_TIMEOUT.value,
                max_tokens=_MAX_TOKENS.value,
            )
        journal.add((number,), verdict)

    missing = [(i, c) for i, c in enumerate(calls) if (i,) not in journal]
    await asyncio.gather(*(one(i, call) for i, call in missing))


if __name__ == "__main__":
    flags.mark_flags_as_required(["workdir", "url", "out"])
    shared.run(main)
