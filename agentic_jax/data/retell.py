"""Trajectories from words: of another tokenizer's policy, or of nobody's.

Their sampled tokens have log-probability 0, as a scripted teacher's do.
"""

from collections.abc import Sequence

import numpy as np

from agentic_jax.chat.template import Chat
from agentic_jax.trajectory import CallRecord, Task, Trajectory, Turn

Said = tuple[str, Sequence[CallRecord]]


def tell(
    task: Task, said: Sequence[Said], *, chat: Chat, score: float | None
) -> Trajectory:
    """The trajectory of a policy that says just this and stops.

    Args:
        task: its messages are the prompt.
        said: of each turn what is written, without the token that ends a turn, and the
            calls that the turn makes with their results; the last turn makes none.
        chat: renders.
        score: of the trajectory.

    Raises:
        ValueError: no turn, or a call in the last one and nowhere else.
    """
    calls = [bool(records) for _, records in said]
    if not said or calls != [True] * (len(said) - 1) + [False]:
        raise ValueError(
            f"turns with calls: {calls}; every turn but the last makes calls"
        )
    end = chat.decode([chat.end_of_turn_id])
    turns = []
    for text, records in said:
        ids = chat.encode(text + end)
        turn = Turn(ids, np.zeros(len(ids), np.float32), 0, tuple(records))
        if records:
            results = chat.render_results(ids, [r.result for r in records])
            turn = Turn(ids, turn.logprobs, 0, turn.calls, results)
        turns.append(turn)
    prompt = chat.render_prompt(task.messages)
    return Trajectory(task, prompt, tuple(turns), "answer", score)


def text_after_prompt(turn: Turn, *, heard: Chat, told: Chat) -> str:
    """A turn's text, without the <think> that `told` has in its prompt already."""
    nothing = Turn(np.zeros(0, np.int32), np.zeros(0, np.float32), 0)
    return heard.turn_text(turn).removeprefix(told.turn_text(nothing))


def retell(trajectory: Trajectory, *, heard: Chat, told: Chat) -> Trajectory:
    """The same turns and results in another model's tokens.

    Text that our side added to a turn, and a token that ended it in the one model, are
    those of the other model now; special tokens inside a turn stay the text they are.

    Args:
        trajectory: that ended with an answer.
        heard: format of the model that played it.
        told: format of the model that will be trained on it; it must write calls in the
            same way.

    Raises:
        ValueError: the formats of calls differ, or it did not end with an answer.
    """
    if heard.format != told.format:
        raise ValueError(
            f"the trajectory writes calls as {heard.format!r}, the model to be trained "
            f"as {told.format!r}: set one chat.format for both"
        )
    said = [
        (text_after_prompt(turn, heard=heard, told=told), turn.calls)
        for turn in trajectory.turns
    ]
    return tell(trajectory.task, said, chat=told, score=trajectory.score)
