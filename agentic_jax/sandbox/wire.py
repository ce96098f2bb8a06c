"""JSON of the HTTP routes: SandboxFusion's fields, and our own for our client.

A malformed request raises ValueError with the field and what was wanted.
"""

import base64
import binascii
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentic_jax.sandbox.execution import Execution, Limits
from agentic_jax.sandbox.grading import Grade, Submission, TestResult

_FUSION_STATUS = {"ok": "Finished", "timeout": "TimeLimitExceeded"}  # Others: Error.


def decode(body: bytes) -> dict[str, Any]:
    """The JSON object of a request body; control characters may stay as they are.

    Models write raw newlines into strings. Bytes that are not UTF-8 are replaced.
    """
    try:
        value = json.loads(body.decode(errors="replace"), strict=False)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"the body is a {type(value).__name__}; send an object")
    return value


def field(body: Mapping[str, Any], name: str, kind: type, *default: Any) -> Any:
    """A field of the right type, or the default where it is absent."""
    if name not in body:
        if default:
            return default[0]
        raise ValueError(f"{name} is missing; it is a {kind.__name__}")
    value = body[name]
    kinds = (int, float) if kind is float else kind
    if not isinstance(value, kinds) or isinstance(value, bool) != (kind is bool):
        raise ValueError(f"{name} is {value!r:.100}; it must be a {kind.__name__}")
    return value


def decode_files(encoded: Mapping[str, Any]) -> dict[str, bytes]:
    """Contents by path, from base64."""
    files = {}
    for path, text in encoded.items():
        try:
            files[path] = base64.b64decode(text, validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise ValueError(f"files[{path!r:.100}] is not base64: {error}") from error
    return files


def encode_files(files: Mapping[str, bytes]) -> dict[str, str]:
    """Base64 by path."""
    return {path: base64.b64encode(data).decode() for path, data in files.items()}


def paths(body: Mapping[str, Any], name: str) -> list[str]:
    """A list of strings, empty where the field is absent."""
    values = field(body, name, list, [])
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} is {values!r:.100}; it must be a list of strings")
    return values


def decode_limits(body: Mapping[str, Any], defaults: Limits) -> Limits:
    """The defaults with what the field `limits` changes."""
    changed = field(body, "limits", dict, {})
    known = {option.name for option in dataclasses.fields(Limits)}
    for name in changed:
        if name not in known:
            raise ValueError(f"no limit {name!r:.100}; known: {', '.join(known)}")
    return dataclasses.replace(defaults, **changed)


def encode_execution(done: Execution) -> dict[str, Any]:
    """An Execution as JSON."""
    return dataclasses.asdict(done) | {"files": encode_files(done.files)}


def decode_execution(body: Mapping[str, Any]) -> Execution:
    """The inverse of `encode_execution`."""
    return Execution(**body | {"files": decode_files(body["files"])})


def fusion_arguments(body: Mapping[str, Any], defaults: Limits) -> dict[str, Any]:
    """Arguments of `Sandbox.execute` for SandboxFusion's /run_code fields.

    Without `stdin` a last expression is echoed; a program that is fed input is
    graded on what it prints, so there it is not. `echo` overrides.
    """
    memory_mb = field(body, "memory_limit_MB", int, -1)
    stdin = body.get("stdin")
    if stdin is not None and not isinstance(stdin, str):
        raise ValueError(f"stdin is {stdin!r:.100}; it must be a string or null")
    limits = decode_limits(body, defaults)
    if memory_mb != -1:  # Their word for no limit; ours is then the default.
        limits = dataclasses.replace(limits, memory_mb=memory_mb)
    return {
        "code": field(body, "code", str),
        "timeout": field(body, "run_timeout", float, 10.0),
        "stdin": stdin or "",
        "files": decode_files(field(body, "files", dict, {})),
        "fetch": paths(body, "fetch_files"),
        "echo": field(body, "echo", bool, stdin is None),
        "limits": limits,
    }


def fusion_answer(done: Execution) -> dict[str, Any]:
    """SandboxFusion's answer to /run_code."""
    if done.status == "busy":
        return fusion_fault(done.message)
    stderr = done.stderr
    if done.message:
        stderr = f"{stderr}\n{done.message}\n" if stderr else f"{done.message}\n"
    return {
        "status": "Success" if done.status == "ok" else "Failed",
        "message": done.message,
        "compile_result": None,
        "run_result": {
            "status": _FUSION_STATUS.get(done.status, "Error"),
            "execution_time": done.seconds,
            "queue_time": done.queue_seconds,
            "return_code": done.exit_code,
            "stdout": done.stdout,
            "stderr": stderr,
        },
        "files": encode_files(done.files),
    }


def fusion_fault(message: str) -> dict[str, Any]:
    """SandboxFusion's answer where nothing of the code can be said."""
    return {
        "status": "SandboxError",
        "message": message,
        "compile_result": None,
        "run_result": None,
        "files": {},
    }


def jupyter_answer(
    cells: Sequence[Execution], files: Mapping[str, bytes]
) -> dict[str, Any]:
    """SandboxFusion's answer to /run_jupyter.

    A last expression's value is in stdout; `display` is empty, as nothing draws.
    """
    failed = any(cell.status != "ok" for cell in cells)
    return {
        "status": "Failed" if failed else "Success",
        "message": " ".join(cell.message for cell in cells if cell.message),
        "cells": [
            {
                "stdout": cell.stdout,
                "stderr": cell.stderr,
                "display": [],
                "error": [] if cell.status == "ok" else [_jupyter_error(cell)],
            }
            for cell in cells
        ],
        "files": encode_files(files),
    }


def _jupyter_error(cell: Execution) -> dict[str, Any]:
    last_line = cell.stderr.rstrip().rpartition("\n")[2]
    name, _, value = (cell.message or last_line).partition(": ")
    if cell.message:
        name, value = cell.status, cell.message
    return {"ename": name, "evalue": value, "traceback": cell.stderr.splitlines()}


def decode_submission(body: Mapping[str, Any]) -> Submission:
    """A Submission from the body of /grade."""
    return Submission(
        code=field(body, "code", str),
        inputs=field(body, "inputs", list),
        expected=field(body, "expected", list),
        function=field(body, "function", str, ""),
        timeout=field(body, "timeout", float, 10.0),
    )


def encode_grade(grade: Grade) -> dict[str, Any]:
    """A Grade as JSON."""
    return {"passed": grade.passed} | dataclasses.asdict(grade)


def decode_grade(body: Mapping[str, Any]) -> Grade:
    """The inverse of `encode_grade`."""
    return Grade(tuple(TestResult(**test) for test in body["tests"]))


def judge_submissions(
    body: Mapping[str, Any],
) -> tuple[list[Submission], list[tuple[int, int]]]:
    """Submissions from rStar2's batch of solution, input and expected output.

    Items of one program become one submission, so that it is compiled once. Returns
    also for each item which submission and which of its tests it became.
    """
    tests: dict[tuple[str, float], list[tuple[str, str]]] = {}
    order: dict[tuple[str, float], int] = {}
    places = []
    for item in field(body, "submissions", list):
        if not isinstance(item, dict):
            raise ValueError(f"a submission is {item!r:.100}; it must be an object")
        kind = field(item, "type", str, "python")
        if kind != "python":
            raise ValueError(f"type is {kind!r}; only 'python' is here")
        program = field(item, "solution", str), field(item, "timeout", float, 10.0)
        same = tests.setdefault(program, [])
        order.setdefault(program, len(order))
        places.append((order[program], len(same)))
        same.append(
            (field(item, "input", str, ""), field(item, "expected_output", str))
        )
    submissions = [
        Submission(
            code=code,
            inputs=[given for given, _ in pairs],
            expected=[expected for _, expected in pairs],
            timeout=timeout,
        )
        for (code, timeout), pairs in tests.items()
    ]
    return submissions, places


def judge_answer(
    grades: Sequence[Grade], places: Sequence[tuple[int, int]]
) -> dict[str, Any]:
    """rStar2's answer: one result an item, in their order."""
    tests = [grades[submission].tests[test] for submission, test in places]
    return {
        "results": [
            {
                "success": test.passed,
                "run_success": test.status == "ok",
                "cost": test.seconds,
                "reason": "" if test.status == "ok" else test.status,
            }
            for test in tests
        ]
    }
