"""From a program in the policy's text to a sandbox submission."""

import json
import re
import secrets
from collections.abc import Mapping
from typing import Any

from agentic_jax.sandbox.grading import Submission

_FENCE = re.compile(
    r"^[ \t]*```[ \t]*(?:python3?|py)?[ \t]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE
)
_SCORER = """
import json, sys
import reasoning_gym
problem = json.loads({problem!r})
made = reasoning_gym.create_dataset(problem["dataset"], **problem["options"])
score = made.score_answer(sys.stdin.read(), made[problem["index"]])
print()
print({token!r}, float(score))
"""


def extract_program(text: str) -> str | None:
    """The last fenced block that is Python or names no language; None without one."""
    blocks = _FENCE.findall(text)
    return blocks[-1] if blocks else None


def submissions_of(
    code: str, tests: Mapping[str, Any], *, timeout: float
) -> list[Submission]:
    """What the sandbox has to run, for either form of tests.

    Values are one submission, and are compared outside the program. Each script is one,
    and runs right after the program; it passes only if what follows it, a function that
    gives back a token, new each time, is reached: a program that exits early, or prints
    that it passed, fails. A program that searches its own interpreter for the token, or
    returns what equals everything, could still cheat, so values are the better form.

    Args:
        code: the program.
        tests: {"inputs", "outputs", "function"} or {"scripts", "prefix"}; see
            data/programs.py.
        timeout: seconds a test.

    Raises:
        ValueError: neither form, or no tests.
    """
    if "inputs" in tests:
        inputs, outputs = tests["inputs"], tests["outputs"]
        function = tests.get("function", "")
        return [Submission(code, inputs, outputs, function=function, timeout=timeout)]
    if not tests.get("scripts"):
        raise ValueError(f"tests have {', '.join(tests)}; want inputs or scripts")
    token = secrets.token_hex(16)
    name = f"passed_{token}"
    end = f"def {name}(): return {token!r}"
    return [
        Submission(
            "\n".join([tests.get("prefix", ""), code, script, end]),
            [[]],
            [token],
            function=name,
            timeout=timeout,
        )
        for script in tests["scripts"]
    ]


def scoring_program(problem: Mapping[str, Any]) -> tuple[str, str]:
    """A program that scores the answer on its standard input, and its token.

    The last line that it prints is the token and the score. Scorers evaluate what they
    are given, so an answer is as hostile as a program.

    Args:
        problem: {"dataset", "options", "index"} of a reasoning-gym problem.
    """
    token = secrets.token_hex(16)
    return _SCORER.format(problem=json.dumps(problem), token=token), token
