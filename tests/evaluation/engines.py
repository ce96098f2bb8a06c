"""An engine that needs no model: it answers by counting."""

import pathlib
import re

from agentic_jax.rollout.scripted import ScriptedEngine


class Counting(ScriptedEngine):
    """Answers 1, 2, 3, ... to the samples of each problem; `log` gets their names."""

    def __init__(self, chat, log):
        super().__init__({}, encode=chat.encode)
        self._end = chat.decode([chat.end_of_turn_id])
        self._log = pathlib.Path(log)

    async def generate(self, token_ids, params, *, session):
        with self._log.open("a") as file:
            file.write(session + "\n")
        g = int(re.fullmatch(r"eval-0-\d+-(\d+)", session)[1])
        self._replies = lambda context: f"\\boxed{{{g + 1}}}" + self._end
        return await super().generate(token_ids, params, session=session)


def counting(params, model, chat, *, log):
    return Counting(chat, log)
