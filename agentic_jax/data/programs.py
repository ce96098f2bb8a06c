"""Problem sets whose answers are programs, and the forms that their tests take.

extra["tests"] is one of
    {"inputs": [...], "outputs": [...], "function": name}   values or printed text; an
        empty name runs the program on each input as its standard input
    {"scripts": [...], "prefix": text}   Python that raises if the program is wrong;
        the prefix is put before the program
rewards/programs.py runs them.
"""

import ast
import base64
import io
import json
import pickle
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentic_jax.data.tasks import user_messages
from agentic_jax.trajectory import Task

Values = Mapping[str, Any]


def task(
    question: str,
    *,
    tests: Mapping[str, Any],
    id: str = "",
    solution: str = "",
    **extra: Any,
) -> Task:
    """A problem that unit tests grade; `solution` is a program that passes them."""
    extra = {"verifier": "unit_tests", "tests": tests, **extra}
    return Task(id, user_messages(question), solution, "code", extra)


def humaneval(row: Values, rng: np.random.Generator) -> Task:
    """A function to complete; the prompt's own imports stay before any program."""
    question = f"Write the whole function.\n```python\n{row['prompt']}```"
    script = f"{row['test']}\ncheck({row['entry_point']})"
    return task(
        question,
        id=row["task_id"],
        tests={"scripts": [script], "prefix": row["prompt"]},
        solution=row["prompt"] + row["canonical_solution"],
    )


def mbpp(row: Values, rng: np.random.Generator) -> Task:
    """A sentence and three assertions, which the question shows, as is the custom."""
    text = row["text"] if "text" in row else row["prompt"]
    asserts = row["test_list"]
    question = f"{text}\nThe program must pass:\n" + "\n".join(asserts)
    setup = row.get("test_setup_code") or "\n".join(row.get("test_imports") or [])
    scripts = [f"{setup}\n{text}" for text in asserts]  # It may use the program.
    return task(
        question,
        id=str(row["task_id"]),
        tests=asserted_values(asserts) or {"scripts": scripts, "prefix": ""},
        solution=row["code"],
    )


def leetcode(row: Values, rng: np.random.Generator) -> Task:
    """A method of class Solution; the prompt field holds the imports that it needs."""
    starter = row.get("starter_code") or ""
    question = f"{row['problem_description']}\n```python\n{starter}\n```"
    script = f"{row['test']}\ncheck({row['entry_point']})"
    return task(
        question,
        id=str(row["task_id"]),
        tests={"scripts": [script], "prefix": row["prompt"]},
        solution=row["completion"],
        difficulty=row.get("difficulty") or "",
    )


def livecodebench(row: Values, rng: np.random.Generator) -> Task:
    """Public and private tests, of printed text or of a method's value."""
    cases = json.loads(row["public_test_cases"])
    cases += private_cases(row["private_test_cases"])
    function = json.loads(row["metadata"]).get("func_name", "")
    inputs = [case["input"] for case in cases]
    outputs = [case["output"] for case in cases]
    if function:  # One JSON value a line, an argument each.
        inputs = [[json.loads(x) for x in text.splitlines()] for text in inputs]
        outputs = [json.loads(text) for text in outputs]
    question = row["question_content"]
    if row["starter_code"]:
        question += f"\nBegin with:\n```python\n{row['starter_code']}\n```"
    else:
        question += "\nThe program reads standard input and prints its answer."
    return task(
        question,
        id=row["question_id"],
        tests={"inputs": inputs, "outputs": outputs, "function": function},
        difficulty=row["difficulty"],
        date=str(row["contest_date"]),
    )


def skywork_tests(truth: Values) -> dict[str, Any]:
    """The tests of Skywork-OR1: inputs and outputs, or a script with an entry point.

    Raises:
        KeyError: neither form.
    """
    if "inputs" in truth:
        return {
            "inputs": truth["inputs"],
            "outputs": truth["outputs"],
            "function": truth.get("fn_name") or "",
        }
    script = f"{truth['test_code']}\ncheck({truth['entry_point']})"
    return {"scripts": [script], "prefix": truth.get("import_prefix") or ""}


def private_cases(text: str) -> list[dict[str, Any]]:
    """LiveCodeBench's hidden tests: JSON, or JSON pickled, deflated and in base 64.

    Raises:
        ValueError: neither, or a pickle that holds more than text.
    """
    try:
        return json.loads(text)
    except ValueError:
        packed = zlib.decompress(base64.b64decode(text))
        return json.loads(_TextUnpickler(io.BytesIO(packed)).load())


def asserted_values(asserts: Sequence[str]) -> dict[str, Any] | None:
    """Assertions of the form f(literals) == literal as inputs and outputs, else None.

    The program then never sees what is expected of it. Only values that survive JSON
    are taken: an argument that is a tuple or a set stays an assertion, and so does an
    expected bool, which equals 0 or 1 in Python and not in JSON.
    """
    calls = [_asserted(text) for text in asserts]
    names = {call[0] for call in calls if call}
    if None in calls or len(names) != 1:
        return None
    return {
        "inputs": [call[1] for call in calls],
        "outputs": [call[2] for call in calls],
        "function": names.pop(),
    }


def _asserted(text: str) -> tuple[str, list[Any], Any] | None:
    """Name, arguments and value of one assertion."""
    try:
        (statement,) = ast.parse(text.strip()).body
        test = statement.test
        (right,) = test.comparators
        arguments = [ast.literal_eval(argument) for argument in test.left.args]
        value = ast.literal_eval(right)
        name = test.left.func.id
    except (AttributeError, SyntaxError, ValueError, TypeError):
        return None
    equality = len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)
    if (
        not equality
        or isinstance(value, bool)
        or test.left.keywords
        or not _is_json([*arguments, value])
    ):
        return None
    return name, arguments, value


def _is_json(value: Any) -> bool:
    """Whether JSON gives the same value back."""
    if isinstance(value, list):
        return all(map(_is_json, value))
    if isinstance(value, dict):
        return all(isinstance(k, str) and _is_json(v) for k, v in value.items())
    return value is None or isinstance(value, str | int | float | bool)


class _TextUnpickler(pickle.Unpickler):
    """Reads plain values only: a data file names no code to run."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuses.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"the pickled tests name {module}.{name}; text is wanted")
