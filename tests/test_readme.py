import contextlib
import io
import pathlib
import re

README = pathlib.Path(__file__).parent.parent / "README.md"


def test_the_tour_runs_and_prints_what_it_says():
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert abs(float(printed.getvalue()) - -0.9167) < 1e-4


def test_every_file_and_module_that_is_named_exists():
    root, text = README.parent, README.read_text("utf-8")
    for name in re.findall(r"`((?:docs|tests|configs)/[\w/]+\.\w+)", text):
        assert (root / name).exists(), name
    for name in re.findall(r"python -m launch\.(\w+)", text):
        assert (root / "launch" / f"{name}.py").exists(), name
