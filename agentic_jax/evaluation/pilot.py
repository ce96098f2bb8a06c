"""Whether good tool calls lower the entropy: dH by a judge's verdict on each call."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentic_jax.evaluation.estimators import bootstrap_ci
from agentic_jax.monitor.behavior import entropy_changes
from agentic_jax.monitor.trace import token_texts


@dataclass(frozen=True)
class TracedCall:
    """A call of a trace, and what it did to the entropy.

    Attributes:
        domain: of its task.
        question: the task's messages of the user.
        before: what the policy wrote in the turn of the call, up to its end.
        call: name and arguments.
        result: the tool's answer.
        change: dH, nats; see monitor.behavior.entropy_changes.
        ratio: dH relative to the entropy before.
    """

    domain: str
    question: str
    before: str
    call: str
    result: str
    change: float
    ratio: float


def traced_calls(rows: Sequence[Mapping[str, Any]]) -> Iterator[TracedCall]:
    """Every call of a trace that has sampled tokens before and after it, in order.

    Args:
        rows: as monitor.trace.read_trace gives them.
    """
    for row in rows:
        texts, tokens = token_texts(row), row["tokens"]
        turn, mask = np.array(tokens["turn"], int), np.array(tokens["mask"], bool)
        entropy = np.array(tokens["entropy"], float)
        sampled = [mask & (turn == k + 1) for k in range(len(row["turns"]))]
        made = [len(t["calls"]) for t in row["turns"]]
        changes = iter(entropy_changes(made, [entropy[here] for here in sampled]))
        asked = [m["content"] for m in row["task"]["messages"] if m["role"] == "user"]
        for here, played in zip(sampled, row["turns"], strict=True):
            for record in played["calls"]:
                change = next(changes)
                if change is not None:
                    yield TracedCall(
                        domain=row["task"]["domain"],
                        question="\n\n".join(asked),
                        before="".join(texts[i] for i in np.flatnonzero(here)),
                        call=f"{record['call']['name']}: {record['call']['arguments']}",
                        result=record["result"]["text"],
                        change=change[0],
                        ratio=change[1],
                    )


def quality_rows(
    calls: Sequence[TracedCall], useful: Sequence[bool], *, seed: int
) -> list[list[str]]:
    """Mean dH and ratio of useful and useless calls, by domain and over all.

    Args:
        calls: of traced_calls.
        useful: the judge's verdict on each.
        seed: of the 95% bootstrap intervals, which are over calls.

    Returns:
        A header and one row for each domain and verdict, for evaluation.tables: the
        number of calls, mean dH in nats with its interval, mean ratio, and the share
        of calls that lower the entropy.

    Raises:
        ValueError: calls and verdicts differ in number.

    Source: TEPO (arXiv:2602.02050), the pilot study.
    """
    judged = list(zip(calls, useful, strict=True))
    domains = sorted({call.domain for call in calls})
    inside: dict[str, Callable[[TracedCall], bool]] = {"all": lambda call: True}
    for domain in domains if len(domains) > 1 else ():
        inside[domain] = lambda call, domain=domain: call.domain == domain
    rows = [["domain", "judge", "calls", "dH", "dH / H", "lower"]]
    for name, belongs in inside.items():
        for verdict in (True, False):
            mine = [c for c, good in judged if good == verdict and belongs(c)]
            label = "useful" if verdict else "useless"
            rows.append([name, label, str(len(mine)), *_cells(mine, seed)])
    return rows


def _cells(calls: Sequence[TracedCall], seed: int) -> list[str]:
    if not calls:
        return ["", "", ""]
    changes = np.array([call.change for call in calls])
    low, high = bootstrap_ci(changes, rng=np.random.default_rng(seed))
    ratio = float(np.mean([call.ratio for call in calls]))
    return [
        f"{changes.mean():+.3f} [{low:+.3f}, {high:+.3f}]",
        f"{ratio:+.3f}",
        f"{(changes < 0).mean():.2f}",
    ]
