import itertools
import random

import jax.numpy as jnp
import pytest

from agentic_jax.conformance.__main__ import main
from agentic_jax.conformance.checks import SLOTS, check

SHIPPED = [(slot, name) for slot, table in SLOTS.items() for name in table]


def failures(slot, name, options=None, first=None):
    found = itertools.islice(check(slot, name, options or {}), first)
    return {name: problem for name, problem in found if problem}


@pytest.mark.parametrize("slot, name", SHIPPED)
def test_shipped_functions_keep_the_properties_of_one_compilation(slot, name):
    assert failures(slot, name, first=8) == {}


def test_one_shipped_function_keeps_the_whole_contract():
    assert failures("surrogate", "dual_clipped") == {}


@pytest.mark.slow
@pytest.mark.parametrize("slot, name", SHIPPED)
def test_shipped_functions_keep_the_whole_contract(slot, name):
    assert failures(slot, name) == {}


def mean_over_the_rows_at_hand(log_ratio, advantages):
    """Broken: divides by statistics of the micro-batch."""
    return -jnp.exp(log_ratio) * (advantages - advantages.mean())


def drifts_with_the_row(log_ratio, advantages):
    """Broken: a token's loss depends on where its row lies."""
    place = jnp.arange(log_ratio.shape[0], dtype=jnp.float32)[:, None]
    return -jnp.exp(log_ratio) * advantages * (1.0 + place)


def unguarded(log_ratio, advantages):
    """Broken: 0 / 0 where the advantage is 0, which masked tokens have."""
    return -jnp.exp(log_ratio) * advantages * advantages / advantages


def test_broken_functions_fail_the_property_that_they_break():
    module = "tests.test_conformance"
    batch_mean = failures("surrogate", f"{module}:mean_over_the_rows_at_hand", first=10)
    assert {"padding", "micro-batches"} <= batch_mean.keys()
    drift = failures("surrogate", f"{module}:drifts_with_the_row", first=8)
    assert "order of rows" in drift
    assert "finite" in failures("surrogate", f"{module}:unguarded", first=8)


def keeps_one_twice(group, *, rng):
    """Broken: a sample given twice."""
    return [*group[:1], *group]


def tosses_its_own_coin(group, *, rng):
    """Broken: randomness that no seed decides."""
    return [sample for sample in group if random.random() < 0.5]


def sorts_in_place(group, *, rng):
    """Broken: changes the group that it was given."""
    group.sort(key=lambda sample: sample.reward)
    return group


def trusts_rewards_of_faults(group, *, rng):
    """Broken: a fault may be the best."""
    return [s for s in group if s.reward >= max(x.reward for x in group)]


def sum_of_logprobs(score, trajectory):
    """Broken: hangs on the engine's rounding."""
    return score + sum(float(turn.logprobs.sum()) for turn in trajectory.turns)


def none_for_no_call(score, trajectory):
    """Broken: no number for a trajectory without calls."""
    return score if trajectory.calls else None


@pytest.mark.parametrize(
    "slot, name, broken",
    [
        ("select", "keeps_one_twice", "samples of the group, in order"),
        ("select", "tosses_its_own_coin", "decided by the seed"),
        ("select", "sorts_in_place", "group untouched"),
        ("select", "trusts_rewards_of_faults", "faults decide nothing"),
        ("reward", "sum_of_logprobs", "blind to the engine's rounding"),
        ("reward", "none_for_no_call", "a finite number"),
    ],
)
def test_broken_host_functions_fail_what_they_break(slot, name, broken):
    assert broken in failures(slot, f"tests.test_conformance:{name}")


@pytest.mark.slow
def test_command_names_what_fails_and_exits_with_1(capsys):
    name = "tests.test_conformance:mean_over_the_rows_at_hand"
    assert main(["surrogate", name]) == 1
    assert "FAIL  micro-batches: the loss goes from" in capsys.readouterr().out


def test_unknown_slot_and_missing_option_are_named():
    with pytest.raises(ValueError, match="unknown slot 'surogate'"):
        failures("surogate", "clipped")
    with pytest.raises(ValueError, match="has no option 'eps', did you mean"):
        failures("surrogate", "clipped", {"eps": 0.2})
