"""A player that needs no model: it answers by counting."""

import dataclasses

import numpy as np

from agentic_jax.trajectory import Trajectory, Turn


def counting_player(services, *, seed, with_tools, rights, log=""):
    """Problem p is solved by its first rights[p % len(rights)] samples.

    A negative number means that all its samples are faults. Each play is a line of the
    file `log`, if there is one.
    """

    async def play(task, p, g):
        right = rights[p % len(rights)]
        answer = task.answer if g < right else "0"
        text = f"2 * 3 = 6 \\boxed{{{answer}}}" + services.chat.decode(
            [services.chat.end_of_turn_id]
        )
        ids = services.chat.encode(text)
        prompt = services.chat.render_prompt(task.messages)
        turns = (Turn(ids, np.zeros(len(ids), np.float32), 0),)
        if log:
            with open(log, "a") as file:
                file.write(f"{p} {g}\n")
        done = Trajectory(task, prompt, turns, "answer")
        if right < 0:
            return dataclasses.replace(done, stop="fault", fault="no server")
        return await services.verify(done)

    return play


async def shortest(trajectory, chat, *, scale):
    """A scorer that likes few tokens."""
    return -scale * len(trajectory.token_ids)
