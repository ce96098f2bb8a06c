"""Problems from rows of data, and an endless, resumable stream of them."""

import hashlib
import json
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from absl import logging

from agentic_jax.data.draw import Shuffled
from agentic_jax.data.rows import Row, read_rows
from agentic_jax.trajectory import Task

_KEYS = ("question", "answer", "id", "choices", "messages", "domain")


def read_tasks(
    path: str | pathlib.Path,
    *,
    fields: Mapping[str, str],
    domain: str = "math",
    system: str = "",
    instruction: str = "",
) -> list[Task]:
    """The problems of a file, one a row, in the file's order; see rows.read_rows.

    Args:
        path: .jsonl, .json, .csv or .parquet.
        fields: which field of the file holds what: "answer" and "question" (or
            "messages", a list of {"role", "content"}) are needed, "id", "choices" (a
            list of options) and "domain" are not. Ids default to the file's name and
            the line.
        domain: of every task, where no field holds it.
        system: system message put first; "" puts none.
        instruction: put after each question on a line of its own; not with messages.

    Returns:
        Tasks. A numeric answer becomes its shortest text (27.0 is "27"); of a list, the
        first is `answer` and all are extra["answers"]. It may be empty where the row
        has `tests`, for programs. With choices, the question lists
        them by letter, and an answer that is an index becomes a letter. Fields that the
        mapping does not name are kept in `extra`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: unknown key in `fields`; or a bad row, named by file and number: no
            UTF-8, no object, a missing or empty field, an id used before; or no task
            at all.
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

    def make(row: Row) -> Task:
        return _task(row, path.stem, fields, instruction, system, domain)

    return tasks_of(read_rows(path), make)


def tasks_of(
    rows: Iterable[Row],
    make: Callable[[Row], Task | None],
    *,
    repeats: bool = False,
    limit: int | None = None,
) -> list[Task]:
    """The tasks that `make` gives, in order.

    Args:
        rows: at least one.
        make: gives None for a row that is left out; how many were is logged.
        repeats: whether a task whose id was seen before is left out too, instead of
            being an error.
        limit: stop after so many tasks.

    Raises:
        ValueError: a bad row, named by file and number; an id used before; no task.
    """
    tasks: dict[str, Task] = {}
    left_out, where = 0, "the source"
    for row in rows:
        if limit is not None and len(tasks) == limit:
            break
        where = row.where
        try:
            task = make(row)
            if task is not None and task.id in tasks and not repeats:
                raise ValueError(f"id {task.id!r} was used before")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            missing = f"no {error}; the row has {', '.join(row.values) or 'nothing'}"
            problem = missing if isinstance(error, KeyError) else error
            raise ValueError(f"{where}: {problem}") from error
        if task is None or task.id in tasks:
            left_out += 1
        else:
            tasks[task.id] = task
    if left_out:
        logging.info("%s: %d tasks, %d rows left out", where, len(tasks), left_out)
    if not tasks:
        raise ValueError(f"{where.partition(', ')[0]} holds no problem")
    return list(tasks.values())


class TaskStream:
    """Tasks without end, drawn in an order that a resumed run repeats.

    Args:
        tasks: at least one.
        seed: of the order.
        order: (count, seed) -> an order over the numbers of the tasks; see data.draw.

    Raises:
        ValueError: no tasks.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        seed: int,
        order: Callable[[int, int], Any] = Shuffled,
    ):
        if not tasks:
            raise ValueError("a TaskStream needs at least one task")
        self._tasks = tuple(tasks)
        self._seed = seed
        self._order = order(len(tasks), seed)
        self._drawn: list[int] = []
        self._fingerprint = fingerprint(tasks)

    def next(self, n: int) -> list[Task]:
        """The next n tasks."""
        self._drawn = self._order.next(n)
        return [self._tasks[i] for i in self._drawn]

    def tell(self, scores: Sequence[Sequence[float]]) -> None:
        """What came of the tasks that next gave last, for orders that heed it.

        Args:
            scores: of each task's samples, before shaping, faults left out.

        Raises:
            ValueError: another number of groups than of tasks.
        """
        if len(scores) != len(self._drawn):
            raise ValueError(f"{len(scores)} groups for {len(self._drawn)} tasks")
        self._order.tell(self._drawn, scores)

    def metrics(self) -> dict[str, float]:
        """Of the order, under data/."""
        return self._order.metrics()

    def state(self) -> dict[str, Any]:
        """All that restore needs, as plain JSON values."""
        return {
            "order": self._order.state(),
            "seed": self._seed,
            "fingerprint": self._fingerprint,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues exactly where the state was taken.

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
        self._order.restore(state["order"])


def fingerprint(tasks: Sequence[Task]) -> str:
    """SHA-256 of everything in the tasks and of their order, in hexadecimal."""
    digest = hashlib.sha256()
    for task in tasks:
        parts = [task.id, [dict(m) for m in task.messages], task.answer, task.domain]
        text = json.dumps([*parts, dict(task.extra)], sort_keys=True, default=repr)
        digest.update(text.encode() + b"\n")
    return digest.hexdigest()


def user_messages(
    question: Any,
    *,
    choices: Sequence[str] = (),
    instruction: str = "",
    system: str = "",
) -> tuple[dict[str, str], ...]:
    """A question as chat messages, its options by letter, the instruction last.

    Raises:
        ValueError: the question is no text.
    """
    if not isinstance(question, str) or not question.strip():
        raise ValueError(f"a question is text, not {question!r}")
    options = [f"{letter(i, choices)}. {text}" for i, text in enumerate(choices)]
    content = "\n".join([question, *options, *filter(None, [instruction])])
    return (*_system(system), {"role": "user", "content": content})


def answer_text(answer: Any) -> str:
    """An answer as text; 27.0 is "27".

    Raises:
        ValueError: it is neither text nor a number, or it is empty.
    """
    if isinstance(answer, float) and answer.is_integer():
        return str(int(answer))
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise ValueError(f"an answer is text or a number, not {answer!r}")
    if not str(answer).strip():
        raise ValueError("an answer is empty")
    return str(answer)


def letter(index: int, choices: Sequence[Any]) -> str:
    """A, B, C, ... for 0, 1, 2, ...

    Raises:
        ValueError: there is no such choice, or there are more than 26.
    """
    if not 0 <= index < len(choices) <= 26:
        raise ValueError(f"answer {index} is none of {len(choices)} choices")
    return chr(ord("A") + index)


def _system(text: str) -> tuple[dict[str, str], ...]:
    return ({"role": "system", "content": text},) if text else ()


def _task(
    row: Row,
    source: str,
    fields: Mapping[str, str],
    instruction: str,
    system: str,
    domain: str,
) -> Task:
    """One task of one row."""
    values = row.values
    graded_by_tests = values.get("tests") and values.get(fields["answer"]) == ""
    for key, field in fields.items():
        if key == "answer" and graded_by_tests:
            continue
        if values.get(field) in (None, "", []):
            raise ValueError(f"no {field!r}; the row has {', '.join(values)}")
    extra = {key: values[key] for key in values if key not in fields.values()}
    value = values[fields["answer"]]
    if isinstance(value, list):
        extra["answers"] = [answer_text(one) for one in value]
        value = value[0]
    choices = values[fields["choices"]] if "choices" in fields else []
    if choices and isinstance(value, int):
        value = letter(value, choices)
    if "messages" in fields:
        given = map(_message, values[fields["messages"]])
        messages = (*_system(system), *given)
    else:
        messages = user_messages(
            values[fields["question"]],
            choices=choices,
            instruction=instruction,
            system=system,
        )
    id = str(values[fields["id"]]) if "id" in fields else f"{source}-{row.number}"
    answer = "" if graded_by_tests else answer_text(value)
    if "domain" in fields:
        domain = str(values[fields["domain"]])
    return Task(id, messages, answer, domain, extra)


def _message(message: Any) -> dict[str, str]:
    """A chat message, if it is one."""
    keys = ("role", "content")
    if not isinstance(message, dict) or not all(
        isinstance(message.get(key), str) for key in keys
    ):
        raise ValueError(f"a message has a role and content, not {message!r}")
    return {key: message[key] for key in keys}
