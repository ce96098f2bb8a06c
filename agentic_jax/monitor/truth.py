"""Token truth: whether ids, text, chat template and log-probabilities agree.

Ids from an engine are never encoded again, so disagreement here harms no gradient. It
tells that a policy will be served with other ids than those it was trained on, or that
the engine computes something else than the trainer.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from absl import logging

from agentic_jax.batch import Batch, Scores
from agentic_jax.chat.template import Chat
from agentic_jax.monitor.stats import mean
from agentic_jax.trajectory import Trajectory

TURNS = 8  # Later turns count as the last of these.
LIMITS = {
    "truth/template_differs_fraction": (
        0.0,
        "the chat template writes these conversations in another way than they were "
        "sampled; serve the policy with a template that does not",
    ),
    "tool/extinct": (
        0.0,
        "under 5% of the trajectories call a tool; a policy that reasons at length "
        "unlearns it: start from SFT on tool use, or reward calls",
    ),
    "policy/mismatch_kl": (
        0.01,
        "the engine's log-probabilities are far from the trainer's: compare their "
        "dtypes and sampling options, or set correction to tis or mis",
    ),
}


def token_truth(trajectories: Sequence[Trajectory], *, chat: Chat) -> dict[str, float]:
    """How ids, text and template agree.

    Args:
        trajectories: of one step; faults are left out. Every one is decoded and encoded
            once, so give a few.
        chat: that rendered them.

    Returns:
        truth/template_differs_fraction: share of trajectories whose text is not what
            the template makes of their messages.
        truth/retokenised_fraction: share of sampled turns whose text encodes to other
            ids than were sampled.
        truth/cut_calls: turns that a budget ended within a call.
    """
    finished = [t for t in trajectories if t.stop != "fault" and t.turns]
    turns = [(turn, chat.decode(turn.token_ids)) for t in finished for turn in t.turns]
    moved = [
        not np.array_equal(chat.encode(text), turn.token_ids) for turn, text in turns
    ]
    cut = [chat.opens_call(chat.decode(t.turns[-1].token_ids)) for t in finished]
    return {
        "truth/template_differs_fraction": mean([_differs(t, chat) for t in finished]),
        "truth/retokenised_fraction": mean(moved),
        "truth/cut_calls": float(sum(cut)),
    }


def mismatch_by_turn(scores: Scores, batch: Batch) -> dict[str, float]:
    """Mean |trainer - engine| log-probability over each turn's sampled tokens, nats.

    Args:
        scores: NumPy, of the policy that sampled.
        batch: NumPy.

    Returns:
        policy/mismatch_turn_1 up to the last turn there is, at most TURNS.
    """
    gap = np.abs(scores.logprobs - batch.behavior_logprobs)
    turns = np.minimum(batch.turn_ids, TURNS)
    return {
        f"policy/mismatch_turn_{k}": mean(gap[batch.mask & (turns == k)])
        for k in range(1, int(turns[batch.mask].max(initial=0)) + 1)
    }


def warn(metrics: Mapping[str, float]) -> None:
    """Logs what is beyond its limit, and what to do."""
    for name, (limit, advice) in LIMITS.items():
        if metrics.get(name, 0.0) > limit:
            logging.warning(
                "%s is %.3g, above %g: %s", name, metrics[name], limit, advice
            )


def _differs(trajectory: Trajectory, chat: Chat) -> bool:
    """Whether the template renders the conversation otherwise than it was played."""
    messages = list(trajectory.task.messages)
    for turn in trajectory.turns:
        messages.append({"role": "assistant", "content": chat.turn_text(turn)})
        messages += [
            {"role": "tool", "content": chat.plain(record.result.text)}
            for record in turn.calls
            if len(turn.result_token_ids)
        ]
    rendered = chat.render_text(messages, generation=False)
    return not rendered.startswith(chat.decode(trajectory.token_ids))
