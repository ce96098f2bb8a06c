import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "agentic_jax"
# Layer -> top-level modules (and modules of ours) that it must not import.
DEVICE = {"asyncio", "aiohttp", "http", "socket", "subprocess", "transformers", "absl"}
HOST = {"jax", "flax", "optax", "orbax"}
RULES = {
    "batch.py": DEVICE | {"numpy", "flax", "optax"},
    "losses": DEVICE | {"numpy", "flax", "optax"},
    "models": DEVICE - {"aiohttp"},
    "sharding.py": DEVICE,
    "training/steps.py": DEVICE | {"numpy"},
    "training/update.py": DEVICE,
    "packing.py": DEVICE,
    "trajectory.py": HOST,
    "config.py": HOST,
    "chat": HOST,
    "tools": HOST,
    "rewards": HOST,
    "data": HOST,
    "sandbox": HOST | {"numpy", "transformers"},
    "rollout": HOST,
}
MAY_IMPORT_JAX = {"rollout/jax_engine.py"}
OURS = {  # Layer -> the packages of ours that it may import.
    "batch.py": set(),
    "losses": {"batch", "losses"},
    "models": {"models", "losses", "batch", "sharding"},
    "packing.py": {"trajectory", "batch"},
    "trajectory.py": set(),
    "config.py": set(),
    "tools": {"trajectory", "tools", "sandbox"},
    "chat": {"trajectory", "tools", "chat"},
    "rewards": {"trajectory", "rewards", "sandbox", "config"},
}


def _files(layer: str) -> list[pathlib.Path]:
    path = PACKAGE / layer
    return [path] if path.suffix else sorted(path.glob("**/*.py"))


def _imported(path: pathlib.Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("layer", RULES)
def test_layers_do_not_import_across_the_border(layer):
    assert _files(layer)
    for path in _files(layer):
        if path.relative_to(PACKAGE).as_posix() in MAY_IMPORT_JAX:
            continue
        roots = {name.split(".")[0] for name in _imported(path)}
        assert not roots & RULES[layer], path


@pytest.mark.parametrize("layer", OURS)
def test_layers_import_only_those_of_ours_below_them(layer):
    for path in _files(layer):
        ours = {
            name.split(".")[1]
            for name in _imported(path)
            if name.startswith("agentic_jax.")
        }
        assert ours <= OURS[layer], path


def test_no_module_is_longer_than_400_lines():
    for path in PACKAGE.glob("**/*.py"):
        assert path.read_text("utf-8").count("\n") <= 400, path
