"""Small pieces, and what forked children may import."""

import ast
import pathlib
import sys

import pytest

from agentic_jax.sandbox import zygote
from agentic_jax.sandbox.capture import Capture, cut_middle
from agentic_jax.sandbox.templates import Template, choose_template, imported_names

PACKAGE = pathlib.Path(zygote.__file__).parent


def test_what_runs_beside_the_code_imports_the_standard_library_only():
    pending, seen = ["zygote"], set()
    while pending:
        module = pending.pop()
        seen.add(module)
        tree = ast.parse((PACKAGE / f"{module}.py").read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and "sandbox" in node.module:
                names = node.module.split(".")[2:] or [a.name for a in node.names]
                pending += [name for name in names if name not in seen]
            elif isinstance(node, ast.ImportFrom):
                assert node.module.split(".")[0] in sys.stdlib_module_names
            elif isinstance(node, ast.Import):
                roots = {alias.name.split(".")[0] for alias in node.names}
                assert roots <= sys.stdlib_module_names
    assert {"child", "landlock", "namespaces", "trial"} <= seen
    assert not {"supervisor", "call", "execution"} & seen


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_capture_keeps_head_and_tail_whatever_the_chunks(chunk):
    capture = Capture(10)
    data = bytes(range(65, 65 + 26))  # A to Z: 26 bytes, of which 5 + 5 are kept.
    for i in range(0, 26, chunk):
        capture.add(data[i : i + chunk])
    assert capture.text() == "ABCDE\n[... 16 bytes cut ...]\nVWXYZ"


def test_capture_of_little_is_whole():
    capture = Capture(10)
    capture.add(b"0123456789")
    assert capture.text() == "0123456789"


def test_cut_middle_counts_characters():
    assert cut_middle("abcdef", 6) == "abcdef"
    assert cut_middle("abcdefg", 5) == "ab\n[... 3 characters cut ...]\nfg"


@pytest.mark.parametrize(
    "code, names",
    [
        ("import numpy as np, math\n", {"numpy", "math"}),
        ("  from scipy.linalg import inv\n", {"scipy"}),
        ("x = 'import re'; important = 1", set()),
        ("import os.path # import re", {"os"}),
    ],
)
def test_imports_are_found_without_parsing(code, names):
    assert imported_names(code) == names


def test_the_smallest_template_that_holds_most_is_chosen():
    templates = [Template(("math",)), Template(("math", "numpy")), Template(("sympy",))]
    for code, index in (("1", 0), ("import numpy, math", 1), ("import sympy", 2)):
        assert choose_template(code, templates) == index
