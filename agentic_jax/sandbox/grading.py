"""Unit tests of programs: what each printed or returned, against what it should.

The expected values stay in this process: the code can only earn them.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentic_jax.sandbox.execution import Execution, check_positive
from agentic_jax.trajectory import CallStatus

_START_SECONDS = 5.0  # To compile, and to fork for each input.


@dataclass(frozen=True)
class Submission:
    """A program and its tests.

    Attributes:
        code: Python source.
        inputs: for each test what the program reads, or, with `function`, the list
            of arguments that the function gets.
        expected: for each test the text to be printed, or the value to be returned.
        function: name of a function, or of a method of a class `Solution`; "" runs
            the code as a program.
        timeout: seconds a test.

    Raises:
        ValueError: no tests, unequal numbers, or a bad timeout.
    """

    code: str
    inputs: Sequence[Any]
    expected: Sequence[Any]
    function: str = ""
    timeout: float = 10.0

    def __post_init__(self):
        """Checks what could only fail later."""
        check_positive("timeout", self.timeout)
        if not self.inputs or len(self.inputs) != len(self.expected):
            raise ValueError(
                f"{len(self.inputs)} inputs and {len(self.expected)} expected values;"
                " give at least one, and as many of each"
            )


@dataclass(frozen=True)
class TestResult:
    """One test: whether it passed, how it ended, and its seconds."""

    __test__ = False  # Not a class of tests, whatever pytest thinks of its name.

    passed: bool
    status: CallStatus
    seconds: float
    output: str
    errors: str = ""


@dataclass(frozen=True)
class Grade:
    """Every test of one submission, in order."""

    tests: tuple[TestResult, ...]

    @property
    def passed(self) -> float:
        """Fraction of the tests that passed, in [0, 1]."""
        return sum(test.passed for test in self.tests) / len(self.tests)


def request_of(submission: Submission, *, max_bytes: int) -> dict[str, Any]:
    """What the child gets: everything but the expected values."""
    key = "arguments" if submission.function else "stdin"
    return {
        "mode": "trials",
        "code": submission.code,
        "files": {},
        "inputs": [{key: given} for given in submission.inputs],
        "function": submission.function,
        "timeout": submission.timeout,
        "max_bytes": max_bytes,
    }


def seconds_for(submission: Submission) -> float:
    """Wall-clock limit of all tests of a submission together."""
    return _START_SECONDS + len(submission.inputs) * (submission.timeout + 0.5)


def grade_of(submission: Submission, done: Execution) -> Grade:
    """Compares what came back with what was expected.

    Tests that the run did not reach end as the run did. Values that a hostile
    program forged are as good as values that it printed: compared, nothing more.
    """
    lines = done.stdout.split("\n")
    ended = TestResult(
        False, "error" if done.status == "ok" else done.status, 0.0, "", done.stderr
    )
    results = []
    for i, expected in enumerate(submission.expected):
        try:
            line = json.loads(lines[i])
            results.append(_result(line, expected, bool(submission.function)))
        except (ValueError, IndexError, KeyError, TypeError):
            results.append(ended)
    return Grade(tuple(results))


def _result(line: dict[str, Any], expected: Any, is_function: bool) -> TestResult:
    code, output = line["exit_code"], str(line["output"])
    status: CallStatus = "timeout" if code is None else "error" if code else "ok"
    passed = status == "ok" and (
        same_value(json.loads(output), expected)
        if is_function
        else same_text(output, expected)
    )
    return TestResult(
        passed, status, float(line["seconds"]), output, str(line["errors"])
    )


def same_text(output: str, expected: str) -> bool:
    """Equal but for white space at the ends of lines and at the end."""
    return _lines(output) == _lines(expected)


def same_value(value: Any, expected: Any) -> bool:
    """Equal as JSON, to a float within 1e-6; 2.0 is 2, and True is not 1."""
    if isinstance(expected, list | tuple) and isinstance(value, list):
        return len(value) == len(expected) and all(map(same_value, value, expected))
    if isinstance(expected, dict) and isinstance(value, dict):
        keys = {str(key): item for key, item in expected.items()}
        return value.keys() == keys.keys() and all(
            same_value(value[key], keys[key]) for key in keys
        )
    if isinstance(expected, bool) or isinstance(value, bool):
        return value is expected
    if isinstance(expected, float) and isinstance(value, int | float):
        return math.isclose(value, expected, rel_tol=1e-6, abs_tol=1e-9)
    if isinstance(expected, int) and isinstance(value, float):
        return value == expected
    return type(value) is type(expected) and value == expected


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]
