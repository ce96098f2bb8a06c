"""Problems from JSON-lines files, and an endless, resumable stream of them."""

import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentic_jax.trajectory import Task

_KEYS = ("question", "answer", "id", "choices", "messages")


def read_tasks(
    path: str | pathlib.Path,
    *,
    fields: Mapping[str, str],
    domain: str = "math",
    system: str = "",
    instruction: str = "",
) -> list[Task]:
    r"""The problems of a JSON-lines file, one object a line, in the file's order.

    Lines end at "\n" only: U+2028 and its kind are text. Blank lines are skipped.

    Args:
        path: UTF-8 file.
        fields: which field of the file holds what: "answer" and "question" (or
            "messages", a list of {"role", "content"}) are needed, "id" and "choices"
            (a list of options) are not. Ids default to the file's name and the line.
        domain: of every task.
        system: system message put first; "" puts none.
        instruction: put after each question on a line of its own; not with messages.

    Returns:
        Tasks. A numeric answer becomes its shortest text (27.0 is "27"); of a list, the
        first is `answer` and all are extra["answers"]. With choices, the question lists
        them by letter, and an answer that is an index becomes a letter. Fields that the
        mapping does not name are kept in `extra`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: unknown key in `fields`; or a bad line, named by file and number: no
            UTF-8, no JSON object, a missing or empty field, an id used before; or no
            task at all.
    """
    path = pathlib.Path(path)
    unknown = [key for key in fields if key not in _KEYS]
    if unknown or "answer" not in fields or not {"question", "messages"} & set(fields):
        raise ValueError(
            f"fields maps {sorted(fields)}; it needs answer and question (or messages),"
            f" and may have any of {', '.join(_KEYS)}"
        )
    if instruction and "messages" in fields:
        raise ValueError("instruction goes with a question field, not with messages")
    if not path.is_file():
        raise FileNotFoundError(f"no problem file {path}")
    tasks: dict[str, Task] = {}
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = _decode(line)
            task = _task(
                row, f"{path.stem}-{number}", fields, instruction, system, domain
            )
            if task.id in tasks:
                raise ValueError(f"id {task.id!r} was used before")
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
        tasks[task.id] = task
    if not tasks:
        raise ValueError(f"{path} holds no problem")
    return list(tasks.values())


class TaskStream:
    """Tasks in a new seeded order each epoch, without end.

    Every epoch holds each task exactly once. A batch may reach into the next epoch.

    Args:
        tasks: at least one.
        seed: of all the orders.

    Raises:
        ValueError: no tasks.
    """

    def __init__(self, tasks: Sequence[Task], seed: int):
        if not tasks:
            raise ValueError("a TaskStream needs at least one task")
        self._tasks = tuple(tasks)
        self._seed = seed
        self._taken = 0
        self._fingerprint = fingerprint(tasks)

    def next(self, n: int) -> list[Task]:
        """The next n tasks."""
        tasks = []
        for position in range(self._taken, self._taken + n):
            epoch, index = divmod(position, len(self._tasks))
            if index == 0 or not tasks:
                order = np.random.default_rng([self._seed, epoch]).permutation(
                    len(self._tasks)
                )
            tasks.append(self._tasks[order[index]])
        self._taken += n
        return tasks

    def state(self) -> dict[str, Any]:
        """All that restore needs, as plain JSON values."""
        return {
            "taken": self._taken,
            "seed": self._seed,
            "fingerprint": self._fingerprint,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues exactly where the state was taken, across epochs too.

        Raises:
            ValueError: the tasks or the seed are not those of the state.
        """
        if state["fingerprint"] != self._fingerprint:
            raise ValueError(
                "the problems have changed since the checkpoint was written; bring back"
                " the problem file as it was or start in a new workdir"
            )
        if state["seed"] != self._seed:
            raise ValueError(
                f"seed is {self._seed}, but the checkpoint's data order has seed"
                f" {state['seed']}"
            )
        self._taken = int(state["taken"])


def fingerprint(tasks: Sequence[Task]) -> str:
    """SHA-256 of everything in the tasks and of their order, in hexadecimal."""
    digest = hashlib.sha256()
    for task in tasks:
        parts = [task.id, [dict(m) for m in task.messages], task.answer, task.domain]
        text = json.dumps([*parts, dict(task.extra)], sort_keys=True, default=repr)
        digest.update(text.encode() + b"\n")
    return digest.hexdigest()


def _decode(line: bytes) -> dict[str, Any]:
    """The object on one line."""
    row = json.loads(line.decode("utf-8-sig"))
    if not isinstance(row, dict):
        raise ValueError(f"not a JSON object but {type(row).__name__}")
    return row


def _task(
    row: Mapping[str, Any],
    default_id: str,
    fields: Mapping[str, str],
    instruction: str,
    system: str,
    domain: str,
) -> Task:
    """One task of one row."""
    for field in fields.values():
        if row.get(field) in (None, "", []):
            raise ValueError(
                f"no {field!r}; the line has {', '.join(row) or 'nothing'}"
            )
    extra = {key: row[key] for key in row if key not in fields.values()}
    value = row[fields["answer"]]
    if isinstance(value, list):
        extra["answers"] = [_text(one) for one in value]
        value = value[0]
    choices = row[fields["choices"]] if "choices" in fields else []
    if choices and isinstance(value, int):
        value = _letter(value, choices)
    if "messages" in fields:
        messages = [_message(message) for message in row[fields["messages"]]]
    else:
        options = [f"{_letter(i, choices)}. {text}" for i, text in enumerate(choices)]
        lines = [row[fields["question"]], *options, *filter(None, [instruction])]
        if not isinstance(lines[0], str):
            raise ValueError(f"a question is text, not {lines[0]!r}")
        messages = [{"role": "user", "content": "\n".join(lines)}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    id = str(row[fields["id"]]) if "id" in fields else default_id
    return Task(id, tuple(messages), _text(value), domain, extra)


def _message(message: Any) -> dict[str, str]:
    """A chat message, if it is one."""
    keys = ("role", "content")
    if not isinstance(message, dict) or not all(
        isinstance(message.get(key), str) for key in keys
    ):
        raise ValueError(f"a message has a role and content, not {message!r}")
    return {key: message[key] for key in keys}


def _text(answer: Any) -> str:
    """An answer as text."""
    if isinstance(answer, float) and answer.is_integer():
        return str(int(answer))
    if isinstance(answer, str) or (
        isinstance(answer, int | float) and not isinstance(answer, bool)
    ):
        return str(answer)
    raise ValueError(f"an answer is text or a number, not {answer!r}")


def _letter(index: int, choices: Sequence[Any]) -> str:
    """A, B, C, ... for 0, 1, 2, ..."""
    if not 0 <= index < len(choices) <= 26:
        raise ValueError(f"answer {index} is none of {len(choices)} choices")
    return chr(ord("A") + index)
