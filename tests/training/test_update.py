"""What padding, packing, micro-batches and devices must not change."""

import functools

import jax
import numpy as np
import pytest

from agentic_jax.packing import pack_step
from agentic_jax.recipe import build_rl
from agentic_jax.training.build import build_device
from agentic_jax.training.update import score_step, step_targets, update_step
from configs import quickstart
from tests.fakes import sample, turn

RNG = np.random.default_rng(0)
GROUPS = [
    [
        sample(
            RNG.integers(20, 99, 5),
            turn(RNG.integers(20, 99, RNG.integers(2, 20)), [7, 8], ["ok"]),
            turn(RNG.integers(20, 99, 3)),
            reward=float(RNG.normal()),
        )
        for _ in range(4)
    ]
    for _ in range(4)
]


@functools.cache
def trained(row_length=64, rows=4, mesh=(), aggregation="token_mean"):
    """Parameters and metrics after one update on GROUPS, from the same start."""
    config = quickstart.get_config("tiny")
    config.rollout.max_response_tokens = 32
    config.batch.row_length = row_length
    config.batch.rows_per_microbatch = rows
    config.batch.logprob_chunk = 32
    # Adam makes a whole step of any gradient above its eps, rounding of zeros too.
    config.optimizer.eps = 1e-5
    config.aggregation = {"name": aggregation}
    for axis, size in mesh:
        config.mesh[axis] = size
    recipe = build_rl(config)
    device, state = build_device(recipe, recipe.model(), temperature=1.0)
    step = pack_step(
        GROUPS,
        num_updates=1,
        length=row_length,
        rows_multiple=rows,
        rng=np.random.default_rng(0),
    )
    scores = score_step(device, state.params, step.batch)
    targets = step_targets(device, step, scores)
    state, metrics = update_step(device, state, step, targets)
    return jax.device_get(state.params), metrics, float(targets.weights.sum())


def assert_same(a, b):
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=2e-6)
    jax.tree.map(close, a[0], b[0])
    for name in ("policy/loss", "policy/grad_norm", "policy/tokens", "policy/ratio"):
        np.testing.assert_allclose(a[1][name], b[1][name], rtol=1e-5, atol=1e-7)


def test_weights_of_an_update_sum_to_one():
    assert trained()[2] == pytest.approx(1.0, abs=1e-5)


def test_longer_rows_change_nothing():
    assert_same(trained(), trained(row_length=128))


def test_micro_batches_change_nothing():
    assert_same(trained(), trained(rows=1))


@pytest.mark.parametrize(
    "mesh",
    [
        (("data", 2), ("fsdp", 2)),
        (("fsdp", 4),),
        (("data", 4), ("fsdp", 2)),
    ],
    ids=str,
)
def test_devices_change_nothing(mesh):
    assert_same(trained(), trained(rows=8, mesh=mesh))


def updated_twice(eps_high, scheduled):
    """Parameters after two updates on the same targets, the second off policy."""
    config = quickstart.get_config("tiny")
    config.batch.row_length = config.batch.logprob_chunk = 64
    config.rollout.max_response_tokens = 32
    config.surrogate = {"name": "clipped", "eps_low": 0.2, "eps_high": eps_high}
    recipe = build_rl(config)
    device, state = build_device(recipe, recipe.model(), temperature=1.0)
    rng = np.random.default_rng(0)
    step = pack_step(GROUPS, num_updates=1, length=64, rows_multiple=4, rng=rng)
    targets = step_targets(device, step, score_step(device, state.params, step.batch))
    for _ in range(2):
        state, metrics = update_step(device, state, step, targets, scheduled)
    return jax.device_get(state.params), metrics["policy/clipped_high"]


def test_an_option_that_moves_equals_the_same_number_fixed():
    ramp = {"name": "linear", "start": 0.0, "end": 1.0, "num_steps": 10}
    fixed, few = updated_twice(1e-3, {})
    moving, same = updated_twice(ramp, {"eps_high": 1e-3})
    assert few == same > updated_twice(1.0, {})[1]
    jax.tree.map(np.testing.assert_array_equal, fixed, moving)


def test_a_step_without_weight_is_skipped_and_counted():
    config = quickstart.get_config("tiny")
    config.batch.row_length = config.batch.logprob_chunk = 128
    recipe = build_rl(config)
    device, state = build_device(recipe, recipe.model(), temperature=1.0)
    before = jax.device_get(state.params)
    groups = [[sample([30, 31], turn([])), sample([30, 31], turn([]))]]
    step = pack_step(
        groups,
        num_updates=1,
        length=128,
        rows_multiple=4,
        rng=np.random.default_rng(0),
    )
    scores = score_step(device, state.params, step.batch)
    targets = step_targets(device, step, scores)
    state, metrics = update_step(device, state, step, targets)
    assert metrics == {"policy/updates": 0.0, "policy/skipped_updates": 1.0}
    jax.tree.map(np.testing.assert_array_equal, before, jax.device_get(state.params))


def test_a_micro_batch_that_does_not_divide_over_the_mesh_is_refused():
    config = quickstart.get_config("tiny")
    config.mesh.data, config.batch.rows_per_microbatch = 8, 6
    recipe = build_rl(config)
    with pytest.raises(ValueError, match="rows_per_microbatch is 6; it must divide"):
        build_device(recipe, recipe.model(), temperature=1.0)
