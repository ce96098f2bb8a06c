"""How Sphinx makes the documentation: these pages, and a reference of the package."""

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


def as_restructured_text(app, what, name, obj, options, lines):
    """Docstrings are plain text: keeps their stars, formulas and hanging indents.

    A block that is indented under a paragraph is a formula or an example.
    """
    text, inside, above, heading = [], False, "", ""
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if line.strip() and not indent:
            inside, heading = False, line.strip()
        new_block = not above.strip() and not inside
        if indent >= 4 and new_block and not heading.endswith(":"):
            text += ["::", ""]
            inside = True
        if above.strip() and line.strip() and indent < len(above) - len(above.lstrip()):
            text.append("")
        text.append(line if inside else line.replace("*", r"\*"))
        above = line
    lines[:] = text


def setup(app):
    """Before napoleon, which reads the sections."""
    app.connect("autodoc-process-docstring", as_restructured_text, priority=100)
