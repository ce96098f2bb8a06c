"""Which modules a fork server imports ahead, and which one a program needs."""

import re
from collections.abc import Sequence

# Modules that are cheap to hold and that short programs import most.
_STDLIB = (
    "array ast asyncio base64 bisect calendar cmath collections "
    "concurrent.futures copy csv ctypes dataclasses datetime decimal difflib enum "
    "fractions functools hashlib heapq inspect io itertools json math "
    "multiprocessing operator pathlib pickle platform pprint queue random re "
    "secrets shutil statistics string struct subprocess tempfile textwrap "
    "threading time traceback types typing unicodedata uuid zlib "
).split()

TEMPLATES = (
    tuple(_STDLIB),
    (*_STDLIB, "numpy", "numpy.random", "numpy.linalg"),
    (*_STDLIB, "numpy", "numpy.random", "numpy.linalg", "scipy", "sympy", "mpmath"),
)

_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+(\w+)|import[ \t]+([^#\n;]+))", re.MULTILINE)


def imported_names(code: str) -> set[str]:
    """Top-level names that import statements mention, found without parsing."""
    names = set()
    for from_name, listed in _IMPORT.findall(code):
        for part in [from_name] if from_name else listed.split(","):
            names.add(part.strip().partition(" ")[0].partition(".")[0])
    return names - {""}


def choose_template(code: str, templates: Sequence[Sequence[str]]) -> int:
    """Index of the first template that holds most of what the code imports."""
    names = imported_names(code)
    held = [len(names & {m.partition(".")[0] for m in t}) for t in templates]
    return held.index(max(held))
