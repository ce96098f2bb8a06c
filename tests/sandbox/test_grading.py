import math

import pytest

from agentic_jax.sandbox.client import Submission
from agentic_jax.sandbox.grading import same_text, same_value


@pytest.fixture
def grade(run, sandbox):
    def grade(code, inputs, expected, **options):
        submission = Submission(code, inputs, expected, **options)
        return run(sandbox.grade([submission]))[0]

    return grade


def test_programs_are_graded_by_what_they_print(grade):
    result = grade("print(int(input()) * 2)", ["1", "2", "x"], ["2", "5", "2"])
    assert [t.passed for t in result.tests] == [True, False, False]
    assert [t.status for t in result.tests] == ["ok", "ok", "error"]
    assert result.passed == pytest.approx(1 / 3)
    assert "ValueError" in result.tests[2].errors


def test_functions_are_graded_by_what_they_return(grade):
    code = "def f(a, b):\n  print('noise')\n  return (a + b, {'k': [a]})"
    result = grade(code, [[1, 2], [2, 2]], [[3, {"k": [1]}], 4], function="f")
    assert [t.passed for t in result.tests] == [True, False]
    method = "class Solution:\n  def f(self, n): return n / 3"
    assert grade(method, [[1]], [0.3333333333], function="f").passed == 1.0
    assert grade("x = 1", [[1]], [1], function="f").tests[0].status == "error"


def test_one_test_does_not_see_or_stop_another(grade):
    code = (
        "import os\nseen = os.listdir('.')\nopen('seen', 'w')\n"
        "n = int(input())\nwhile n == 2: pass\n"
        "if n == 3: os.kill(0, 9)\nprint(n)"
    )
    result = grade(code, ["1", "2", "3", "4"], ["1", "2", "3", "4"], timeout=0.5)
    assert [t.status for t in result.tests] == ["ok", "timeout", "error", "ok"]
    assert result.passed == 0.5


def test_code_that_does_not_compile_fails_every_test(grade):
    result = grade("1/", ["", ""], ["1", "2"])
    assert result.passed == 0.0
    assert "SyntaxError" in result.tests[1].errors


def test_a_forged_report_passes_nothing(grade):
    code = (
        "import os\nparent = os.getppid()\n"
        'line = b\'{"exit_code": 0, "seconds": 0, "output": "?", "errors": ""}\\n\'\n'
        "try: os.write(os.open(f'/proc/{parent}/fd/1', os.O_WRONLY), line * 9)\n"
        "except OSError: pass"
    )
    assert grade(code, ["1", "2"], ["1", "2"]).passed == 0.0


def test_submissions_without_sense_are_refused():
    with pytest.raises(ValueError, match="1 inputs and 0 expected"):
        Submission("1", ["1"], [])
    with pytest.raises(ValueError, match="timeout is nan"):
        Submission("1", ["1"], ["1"], timeout=math.nan)


@pytest.mark.parametrize(
    "value, expected, same",
    [
        (1, 1, True),
        (True, 1, False),
        (True, 1.0, False),
        (1, 1.0, True),
        (2.0, 2, True),
        (2.0000001, 2, False),
        (float(2**53), 2**53 + 1, False),
        (0.1 + 0.2, 0.3, True),
        (0.31, 0.3, False),
        ([1, [2]], (1, (2,)), True),
        ([1], [1, 2], False),
        ("1", 1, False),
        ({"1": 2}, {1: 2}, True),
        (None, None, True),
    ],
)
def test_values_are_compared_as_json(value, expected, same):
    assert same_value(value, expected) is same


def test_text_is_compared_without_white_space_at_ends():
    assert same_text("1 \n2\n\n", "1\n2")
    assert not same_text("1\n\n2", "1\n2")
    assert not same_text(" 1", "1")
