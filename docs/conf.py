"""How Sphinx makes the documentation: these pages, and a reference of the package."""

import re

project = "agentic_jax"
extensions = [
    "myst_parser",
    "sphinx.ext.apidoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]
html_theme = "furo"
exclude_patterns = ["_build"]
suppress_warnings = [
    "myst.xref_missing",  # Links to files that are no pages.
    "ref.python",  # One name in several modules.
]
apidoc_modules = [
    {
        "path": "../agentic_jax",
        "destination": "api",
        "separate_modules": True,
        "module_first": True,
        "max_depth": 1,
    }
]
autodoc_member_order = "bysource"
napoleon_use_ivar = True

FIELDS = ("Args:", "Attributes:", "Raises:")
MARKUP = re.compile(r"[*|]|_(?!\w)")


def as_restructured_text(app, what, name, obj, options, lines):
    """Docstrings are plain text: keeps their signs, formulas and hanging indents.

    A block that is indented under a paragraph is a formula or an example.
    """
    text, formula, heading, above, before = [], False, "", "", ""
    for line in lines:
        indent = _indent(line)
        if line.strip() and not indent:
            formula, heading = False, line.strip()
        if indent >= 4 and not above.strip() and not formula and heading[-1:] != ":":
            text += ["::", ""]
            formula = True
        entry = heading in FIELDS and _indent(above) == 4  # Napoleon reads these.
        ends = above.strip() and line.strip() and indent < _indent(above)
        begins = above.strip() and indent > _indent(above) == _indent(before)
        if ends or (begins and before.strip() and not entry):
            text.append("")
        text.append(line if formula else MARKUP.sub(r"\\\g<0>", line))
        before, above = above, line
    lines[:] = text


def _indent(line):
    return len(line) - len(line.lstrip())


def setup(app):
    """Before napoleon, which reads the sections."""
    app.connect("autodoc-process-docstring", as_restructured_text, priority=100)
