import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from agentic_jax.conformance.checks import SLOTS
from agentic_jax.recipe import build_rl, build_sft

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
HOWTOS = sorted((ROOT / "docs" / "howto").glob("*.md"))
FENCE = re.compile(r"^```(\w*|\{\w+\})(?: (.*))?\n((?:.*\n)*?)```$", re.MULTILINE)
COMMAND = re.compile(r"python -m (\w[\w.]*)([^`|#\n)]*)")
FLAG = re.compile(r"(?:DEFINE_\w+|add_argument)\(\s*\"(?:--)?(\w+)\"")
PYTHON = pathlib.Path(sys.executable)
SFT_LAUNCHERS = ("launch.train_sft", "launch.teacher")


def _ids(paths):
    return [path.relative_to(ROOT).as_posix() for path in paths]


def _blocks(page):
    """(language, what it needs, text) of each fenced block."""
    return FENCE.findall(page.read_text("utf-8"))


def _files(page):
    """Name to text of the files that a page tells its reader to write."""
    files = {}
    for language, _, text in _blocks(page):
        name = re.match(r"# (\w+\.py)\n", text)
        if language == "python" and name:
            files[name[1]] = text
    return files


def _commands(page):
    """(module, words after it) of each command of a page."""
    text = page.read_text("utf-8").replace("\\\n", " ")
    for module, rest in COMMAND.findall(text):
        if module.split(".")[0] in ("launch", "agentic_jax", "benchmarks", "tests"):
            yield module, shlex.split(rest)


def _flags(module):
    """Names of the flags that a module's own file defines."""
    source = pathlib.Path(importlib.util.find_spec(module).origin).read_text("utf-8")
    names = set(FLAG.findall(source))
    return {"help", *names, *(["config"] if "define_config(" in source else [])}


def _config(name, folder):
    """The config that --config=name gives, or None for a placeholder."""
    path, _, variant = name.partition(":")
    found = next((f / path for f in (folder, ROOT) if (f / path).exists()), None)
    if found is None:
        assert path == "..." or path.partition(".")[0].isupper(), f"no config {path}"
        return None
    spec = importlib.util.spec_from_file_location(found.stem, found)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_config(*[variant] if variant else [])


def _set(config, key, value):
    *above, last = key.split(".")
    for part in above:
        config = config[part]
    kind = type(config[last])
    if not value.startswith("$"):  # Else the shell knows it.
        config[last] = value == "true" if kind is bool else kind(value)


@pytest.mark.parametrize("page", PAGES, ids=_ids(PAGES))
def test_each_command_names_a_module_flags_and_keys_that_exist(
    page, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in _files(page).items():
        (tmp_path / name).write_text(text, "utf-8")
    for module, words in _commands(page):
        if importlib.util.find_spec(module).submodule_search_locations:
            module = f"{module}.__main__"
        known = _flags(module)
        given = [word[2:].split("=", 1) for word in words if word.startswith("--")]
        unknown = {flag.split(".")[0] for flag, *_ in given} - known
        assert not unknown, f"{module} has no flag {unknown}"
        values = {flag: value[0] for flag, *value in given if value}
        if module == "agentic_jax.conformance.__main__" and words[0] != "SLOT":
            assert words[0] in SLOTS, words
        config = "config" in values and _config(values["config"], tmp_path)
        if config:
            for flag, value in values.items():
                if flag.startswith("config.") and flag != "config.KEY":
                    _set(config, flag.removeprefix("config."), value)
            (build_sft if module in SFT_LAUNCHERS else build_rl)(config)


@pytest.mark.parametrize("page", PAGES, ids=_ids(PAGES))
def test_targets_extras_and_linked_files_exist(page):
    text = page.read_text("utf-8")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"`make ([\w-]+)", text):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    setup = (ROOT / "setup.py").read_text("utf-8")
    for extra in re.findall(r"agentic_jax\[(\w+)\]", text):
        assert f'"{extra}":' in setup, extra
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (page.parent / link).exists(), link
    for name in re.findall(r"`((?:docs|tests|configs|notebooks)/[\w/]+\.\w+)`", text):
        assert (ROOT / name).exists(), name


@pytest.mark.slow
def test_the_pages_and_the_reference_are_made_without_a_warning(tmp_path):
    pytest.importorskip("myst_parser")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "agentic_jax").symlink_to(ROOT / "agentic_jax")
    done = subprocess.run(
        [PYTHON, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "dummy"]
        + [tmp_path / "docs", tmp_path / "out"],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "docs/api/agentic_jax.losses.clipping.rst").exists()


@pytest.mark.slow
@pytest.mark.parametrize("page", HOWTOS, ids=_ids(HOWTOS))
def test_a_howto_does_what_it_says(page, tmp_path):
    """Writes its files and runs its commands, but for those that need something."""
    for name, text in _files(page).items():
        (tmp_path / name).write_text(text, "utf-8")
    for name in ("agentic_jax", "configs", "launch"):
        (tmp_path / name).symlink_to(ROOT / name)
    environment = {
        **{k: v for k, v in os.environ.items() if k != "XLA_FLAGS"},
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
        "PATH": os.pathsep.join([str(PYTHON.parent), os.environ["PATH"]]),
    }
    for language, needs, text in _blocks(page):
        if language == "bash" and not needs:
            done = subprocess.run(
                [shutil.which("bash"), "-euc", text],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == 0, f"{text}\n{done.stderr[-3000:]}"


def test_what_a_block_needs_is_said_in_one_way():
    for page in PAGES:
        for language, needs, _ in _blocks(page):
            assert not needs or (
                language in ("bash", "console") and needs.startswith("needs: ")
            )


@pytest.mark.parametrize("page", PAGES, ids=_ids(PAGES))
def test_each_block_of_commands_is_run_or_says_what_it_needs(page):
    for language, needs, text in _blocks(page):
        if language != "python" and re.search(r"python -m |\bmake |\bpip ", text):
            run = language == "bash" and page in HOWTOS
            assert run or needs, f"neither run nor marked: {text}"
