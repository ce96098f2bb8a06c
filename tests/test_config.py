import functools
import json
import subprocess
import sys

import pytest

from agentic_jax.config import OPEN, SLOT, bind, changed_keys, check
from agentic_jax.recipe import batch_table, build_rl, build_sft
from configs import quickstart, quickstart_sft


def scaled(x, *, factor):
    return x * factor


TABLE = {"scaled": scaled}


def test_bind_binds_the_options():
    bound = bind({"name": "scaled", "factor": 3}, TABLE)
    assert isinstance(bound, functools.partial)
    assert bound(2) == 6


def test_bind_takes_a_function_of_the_users_own():
    assert bind({"name": "tests.test_config:scaled", "factor": 2}, {})(5) == 10


@pytest.mark.parametrize(
    "spec, message",
    [
        ({"name": "scalde"}, "did you mean 'scaled'"),
        ({"name": "scaled", "facto": 1}, "no option 'facto', did you mean 'factor'"),
        ({"name": "nowhere:f"}, "cannot import 'nowhere:f'"),
        ({"name": "tests.test_config:missing"}, "cannot import"),
    ],
)
def test_bind_rejects_unknown_names_and_options(spec, message):
    with pytest.raises(ValueError, match=message):
        bind(spec, TABLE)


SCHEMA = {"seed": int, "rate": float, "deep": {"name": str}, "loss": SLOT, "any": OPEN}
GOOD = {
    "seed": 1,
    "rate": 2,
    "deep": {"name": "x"},
    "loss": {"name": "l", "free": 1},
    "any": {"thing": [1]},
}


def test_check_takes_an_int_for_a_float_and_leaves_open_sections_alone():
    check(GOOD, SCHEMA)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"sede": 1}, "unknown config key sede, did you mean 'seed'"),
        ({"seed": "1"}, "seed is '1' of type str; int is wanted"),
        ({"seed": True}, "seed is True of type bool; int is wanted"),
        ({"seed": None}, "seed is None"),
        ({"deep": {"nam": "x"}}, "unknown config key deep.nam, did you mean 'name'"),
        ({"deep": 3}, "deep is 3; a section is wanted"),
        ({"loss": {"eps": 1}}, "loss.name is missing"),
    ],
)
def test_check_names_the_key_and_the_fix(change, message):
    with pytest.raises(ValueError, match=message):
        check(GOOD | change, SCHEMA)


def test_check_names_a_missing_key():
    with pytest.raises(ValueError, match="config key rate is missing"):
        check({k: v for k, v in GOOD.items() if k != "rate"}, SCHEMA)


def test_changed_keys_lists_every_leaf_that_differs():
    old = {"a": 1, "b": {"c": 2, "d": (1, 2)}}
    new = {"a": 1, "b": {"c": 3, "d": [1, 2]}, "e": 4}
    assert changed_keys(old, new) == {"b.c": (2, 3), "e": (None, 4)}


def edited(**changes):
    config = quickstart.get_config("tiny")
    with config.unlocked():
        for path, value in changes.items():
            section, _, key = path.partition("__")
            if key:
                config[section][key] = value
            else:
                config[section] = value
    return config


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"group_size": 1}, "group_size is 1; the baseline of credit 'group_norm"),
        ({"rollout__top_p": 0.9}, "rollout.top_p is 0.9.*training needs top_p 1"),
        ({"rollout__temperature": 0.0}, "temperature is 0.0; training samples"),
        ({"prompts_per_step": 3}, "prompts_per_step 3 does not divide into"),
        ({"batch__row_length": 20}, "row_length is 20, but a trajectory may have"),
        ({"engine__length": 20}, "engine.length is 20, but prompt and response"),
        ({"num_steps": 0}, "num_steps is 0; at least 1"),
        ({"kl_coef": 0.1}, "kl_coef is 0.1 but kl.name is 'none'"),
        ({"surrogate__name": "cliped"}, "unknown name 'cliped', did you mean"),
        ({"surrogate__eps": 0.1}, "clipped has no option 'eps'"),
        ({"reward__readin": "code"}, "no option 'readin', did you mean 'reading'"),
        ({"rollout__max_turn": 3}, "unknown config key rollout.max_turn, did you"),
    ],
)
def test_build_rl_rejects_what_does_not_fit_before_touching_anything(changes, message):
    with pytest.raises(ValueError, match=message):
        build_rl(edited(**changes))


@pytest.mark.parametrize("size", ["small", "tiny"])
def test_a_saved_config_is_equal_when_it_is_read_back(size):
    config = build_rl(quickstart.get_config(size)).config
    assert json.loads(json.dumps(config)) == config
    config = build_sft(quickstart_sft.get_config(size)).config
    assert json.loads(json.dumps(config)) == config


def test_an_unknown_variant_names_the_known_ones():
    with pytest.raises(ValueError, match="'huge' does not exist.*tiny"):
        quickstart.get_config("huge")


def test_the_batch_table_shows_the_arithmetic():
    table = batch_table(build_rl(quickstart.get_config()).config)
    assert "trajectories per step        128  16 x 8" in table


def flag_output(*overrides):
    code = (
        "from absl import app, flags; from launch import flags as shared\n"
        "config = shared.define_config('x')\n"
        "def main(_): print({k: (v, type(v).__name__) for k, v in "
        "config.value.items() if k in ('seed', 'kl_coef', 'num_steps')}, "
        "repr(config.value.chat.system))\n"
        "app.run(main)"
    )
    return subprocess.run(
        [sys.executable, "-c", code, "--config=configs/quickstart.py:tiny", *overrides],
        capture_output=True,
        text=True,
    )


def test_a_misspelt_override_stops_with_a_suggestion():
    done = flag_output("--config.rollot.top_p=1")
    assert done.returncode != 0
    assert 'Did you mean "rollout"' in done.stderr


def test_overrides_keep_their_types():
    done = flag_output("--config.kl_coef=1e-3", "--config.chat.system=None")
    assert "'kl_coef': (0.001, 'float')" in done.stdout, done.stderr
    assert "'None'" in done.stdout
    assert flag_output("--config.seed=1e5").returncode != 0
