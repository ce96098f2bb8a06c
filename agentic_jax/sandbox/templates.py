"""Which modules a fork server imports ahead, and which one a program needs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

# Modules that are cheap to hold and that short programs import most.
_STDLIB = (
    "array ast asyncio base64 bisect calendar cmath collections "
    "concurrent.futures copy csv ctypes dataclasses datetime decimal difflib enum "
    "fractions functools hashlib heapq inspect io itertools json math "
    "multiprocessing operator pathlib pickle platform pprint queue random re "
    "secrets shutil statistics string struct subprocess tempfile textwrap "
    "threading time traceback types typing unicodedata uuid zlib "
).split()

_NUMPY = ("numpy", "numpy.random", "numpy.linalg")
_SYMPY = (*_NUMPY, "scipy", "scipy.linalg", "sympy", "mpmath")

# sympy imports much of itself, and fills its caches, at the first use of each part.
_SYMPY_WARM_UP = """
from sympy import *
x, y = symbols("x y")
integrate(x**2 * sin(x), x), integrate(exp(-x**2), (x, -oo, oo)), diff(x**3, x)
solve(x**2 - 2, x), solve([x + y - 1, x - y], [x, y]), solveset(x**2 - 1, x)
simplify(sin(x)**2 + cos(x)**2), factor(x**2 - 1), expand((x + 1)**3)
limit(sin(x) / x, x, 0), series(exp(x), x, 0, 4), summation(x, (x, 1, y))
Matrix([[1, 2], [3, 4]]).inv().eigenvals(), N(pi, 20), sympify("x + 1"), latex(x**2)
factorint(60), isprime(7), str(Rational(1, 3) + sqrt(2)), nsolve(x**2 - 2, x, 1)
"""


@dataclass(frozen=True)
class Template:
    """What a kind of fork server holds ready.

    Attributes:
        modules: imported ahead; those that are not installed are left out.
        warm_up: code of ours that it runs once, to fill caches that forks share; it
            may fail without harm.
    """

    modules: tuple[str, ...]
    warm_up: str = ""


TEMPLATES = (
    Template(tuple(_STDLIB)),
    Template((*_STDLIB, *_NUMPY)),
    Template((*_STDLIB, *_SYMPY), _SYMPY_WARM_UP),
)

_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+(\w+)|import[ \t]+([^#\n;]+))", re.MULTILINE)


def imported_names(code: str) -> set[str]:
    """Top-level names that import statements mention, found without parsing."""
    names = set()
    for from_name, listed in _IMPORT.findall(code):
        for part in [from_name] if from_name else listed.split(","):
            names.add(part.strip().partition(" ")[0].partition(".")[0])
    return names - {""}


def choose_template(code: str, templates: Sequence[Template]) -> int:
    """Index of the first template that holds most of what the code imports."""
    names = imported_names(code)
    held = [len(names & {m.partition(".")[0] for m in t.modules}) for t in templates]
    return held.index(max(held))
