import asyncio
import math

import numpy as np
import pytest

from agentic_jax.data.programs import asserted_values
from agentic_jax.rewards.grading import VerifierError
from agentic_jax.rewards.programs import extract_program, submissions_of
from agentic_jax.rewards.verifiers import VERIFIERS, Services
from agentic_jax.sandbox.client import Sandbox, SandboxError
from agentic_jax.trajectory import Task, Trajectory, Turn

SUM = {"inputs": ["1 2", "3 4"], "outputs": ["3", "7"], "function": ""}
CHECK = {"scripts": ["assert f(2) == 4", "assert f(3) == 9"], "prefix": "import math"}


def decode(ids):
    return bytes(ids.tolist()).decode()


@pytest.fixture(scope="module")
def score():
    """Scores a policy text against tests, in one sandbox for the module."""
    loop = asyncio.new_event_loop()
    box = loop.run_until_complete(Sandbox(workers=2).__aenter__())
    services = Services(decode=decode, sandbox=box)

    def score(text, tests, *, name="unit_tests", **options):
        ids = np.frombuffer(text.encode(), np.uint8).astype(np.int32)
        extra = {"tests": tests, "verifier": "unit_tests"} | options.pop("extra", {})
        task = Task("t", (), "", "code", extra)
        turn = Turn(ids, np.zeros(len(ids), np.float32), 0)
        played = Trajectory(task, ids[:0], (turn,), "answer")
        return loop.run_until_complete(VERIFIERS[name](played, services, **options))

    yield score
    loop.run_until_complete(box.close())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def fenced(code):
    return f"So:\n```python\n{code}\n```\nDone."


@pytest.mark.parametrize(
    "text, code",
    [
        ("```python\nx = 1\n```", "x = 1\n"),
        ("```py\nx\n```\nno:\n```\ny\n```", "y\n"),
        ("```python3\nx\n```\nthen\n```bash\nls\n```", "x\n"),
        ("  ```python\n  x\n  ```", "  x\n"),
        ("```python\ns = '```'\n```", "s = '```'\n"),
        ("```python\nx = 1", None),
        ("x = 1", None),
        ("", None),
    ],
)
def test_the_last_fenced_python_block_is_the_program(text, code):
    assert extract_program(text) == code


def test_programs_are_scored_by_the_fraction_that_passes(score):
    right = fenced("a, b = map(int, input().split())\nprint(a + b)")
    assert score(right, SUM) == 1.0
    half = fenced("print(3)")
    assert score(half, SUM) == 0.5
    assert score(half, SUM, score="all") == 0.0
    assert score(right, SUM, score="all") == 1.0
    assert score("a + b", SUM) == 0.0


def test_scripts_run_beside_the_program_and_must_come_to_their_end(score):
    assert score(fenced("def f(x):\n    return int(math.pow(x, 2))"), CHECK) == 1.0
    assert score(fenced("print('noise')\ndef f(x):\n    return 4"), CHECK) == 0.5
    assert score(fenced("def f(x): return 1/0"), CHECK) == 0.0


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.exit(0)",
        "import os; os._exit(0)",
        "print('ok'); raise SystemExit",
        "def f(x): import os; os._exit(0)",
        "import builtins; builtins.exec = lambda *a: None",
    ],
)
def test_a_program_that_ends_early_passes_nothing(score, code):
    assert score(fenced(code), CHECK) == 0.0


def test_a_program_that_equals_everything_passes_no_values(score):
    code = "class A:\n  def __eq__(self, o): return True\ndef f(x): return A()"
    values = asserted_values(["assert f(2) == 4"])
    assert score(fenced(code), values) == 0.0
    assert score(fenced("def f(x): return x * 2.0"), values) == 1.0


def test_the_token_is_new_each_time_and_no_program_is_told_the_values():
    first, second = (submissions_of("", CHECK, timeout=1.0) for _ in range(2))
    assert first[0].expected[0] != second[0].expected[0]
    (values,) = submissions_of("code", SUM, timeout=1.0)
    assert "7" not in values.code


def test_tests_without_sense_are_refused(score):
    with pytest.raises(ValueError, match="tests have x; want inputs or scripts"):
        submissions_of("", {"x": 1}, timeout=1.0)
    with pytest.raises(ValueError, match="timeout is nan"):
        submissions_of("", SUM, timeout=math.nan)
    with pytest.raises(ValueError, match="score is 'most'; known: fraction, all"):
        score("x", SUM, score="most")


def test_by_task_follows_what_the_task_names(score):
    options = {"unit_tests": {"score": "all"}}
    half = fenced("print(3)")
    assert score(half, SUM, name="by_task", options={}) == 0.5
    assert score(half, SUM, name="by_task", options=options) == 0.0
    with pytest.raises(ValueError, match="names verifier 'maths'; known: math, choice"):
        score("x", SUM, name="by_task", options={}, extra={"verifier": "maths"})


def test_a_sandbox_that_fails_is_a_fault_and_never_a_zero():
    class Broken:
        async def grade(self, submissions):
            raise SandboxError("no server")

    ids = np.frombuffer(fenced("print(3)").encode(), np.uint8).astype(np.int32)
    turn = Turn(ids, np.zeros(len(ids), np.float32), 0)
    task = Task("t", (), "", extra={"tests": SUM})
    played = Trajectory(task, ids[:0], (turn,), "answer")
    verify = VERIFIERS["unit_tests"]
    with pytest.raises(VerifierError, match="did not grade: no server"):
        asyncio.run(verify(played, Services(decode=decode, sandbox=Broken())))
    with pytest.raises(ValueError, match="needs Services.sandbox"):
        asyncio.run(verify(played, Services(decode=decode)))


@pytest.mark.slow
def test_reasoning_gym_scores_with_its_own_rules_inside_the_sandbox(score):
    pytest.importorskip("reasoning_gym")
    from agentic_jax.data.procedural import reasoning_gym

    options = {"dataset": "countdown", "count": 2, "seed": 3, "options": {}}
    first, second = reasoning_gym(**options)
    assert reasoning_gym(**options)[1] == second
    patient = {"name": "reasoning_gym", "extra": second.extra, "timeout": 60.0}
    assert score(f"\\boxed{{{second.answer}}}", {}, **patient) == 1.0
    assert score("\\boxed{1}", {}, **patient) < 0.5
    assert score("I do not know", {}, **patient) == 0.0
    with pytest.raises(ValueError, match="countdown does not take"):
        reasoning_gym(**options | {"options": {"min_nmbers": 2}})
