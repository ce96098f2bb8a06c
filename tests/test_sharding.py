import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from agentic_jax.models.config import ModelConfig
from agentic_jax.models.hf_weights import param_shapes
from agentic_jax.models.transformer import Transformer, head
from agentic_jax.sharding import (
    RULES,
    infer_shardings,
    make_mesh,
    put_batch,
    row_sharding,
)
from agentic_jax.training import state

CONFIG = ModelConfig(
    family="llama",
    vocab_size=32,
    width=16,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=4,
    mlp_width=24,
    attention_bias=True,
    layer_loop="scan",
)
SHAPES = param_shapes(CONFIG)
ROWS = (
    np.random.default_rng(0).integers(0, 32, (8, 8)).astype(np.int32),
    np.tile(np.arange(8, dtype=np.int32), (8, 1)),
    np.ones((8, 8), np.int32),
)


def loss(params, tokens, positions, segments):
    hidden = Transformer(CONFIG).apply({"params": params}, tokens, positions, segments)
    logprobs = jax.nn.log_softmax(hidden @ head(params, CONFIG))
    return -jnp.take_along_axis(logprobs, tokens[..., None], -1).mean()


@pytest.fixture(scope="module")
def params():
    rng = np.random.default_rng(1)
    return jax.tree.map(
        lambda leaf: 0.3 * rng.standard_normal(leaf.shape, np.float32), SHAPES
    )


@pytest.fixture(scope="module")
def expected(params):
    return jax.jit(jax.value_and_grad(loss))(params, *ROWS)


@functools.cache
def compiled_gradient(**axes):
    mesh = make_mesh(axes, jax.devices()[: math.prod(axes.values())])
    shardings = infer_shardings(SHAPES, RULES, mesh)
    with jax.set_mesh(mesh):
        step = jax.jit(
            jax.value_and_grad(loss),
            in_shardings=(shardings, *(row_sharding(mesh),) * 3),
            out_shardings=(None, shardings),
        )
        fast = {"xla_backend_optimization_level": 0}  # Compiles in half the time.
        return mesh, shardings, step.lower(SHAPES, *ROWS).compile(fast)


@pytest.mark.parametrize(
    "axes",
    [
        {"fsdp": 2},
        {"fsdp": 2, "tensor": 2},
        {"fsdp": 8},
        {"data": 2, "fsdp": 2, "tensor": 2},
        {"data": 2, "sequence": 4},
    ],
)
def test_loss_and_gradient_are_the_same_on_every_mesh(params, expected, axes):
    mesh, shardings, step = compiled_gradient(**axes)
    value, gradient = step(jax.device_put(params, shardings), *put_batch(ROWS, mesh))
    np.testing.assert_allclose(value, expected[0], rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
        gradient,
        expected[1],
    )


def test_activations_stay_with_their_rows():
    _, _, step = compiled_gradient(fsdp=8)
    # Weights are gathered; nothing is exchanged between rows.
    assert "all-gather" in step.as_text() and "all-to-all" not in step.as_text()


def test_a_parameter_is_cut_as_its_rule_says(params):
    mesh = make_mesh({"fsdp": 4, "tensor": 2})
    shardings = infer_shardings(SHAPES, RULES, mesh)
    placed = jax.device_put(params, shardings)
    up = placed["layers"]["mlp"]["up"]["kernel"]  # [2, 16, 24] over fsdp and tensor.
    assert up.sharding.shard_shape(up.shape) == (2, 4, 12)


def test_optimizer_state_is_cut_like_its_parameters():
    mesh = make_mesh({"fsdp": 4, "tensor": 2})
    train_state = jax.eval_shape(lambda p: state.init(p, optax.adamw(1e-3)), SHAPES)
    shardings = infer_shardings(train_state, RULES, mesh)
    assert shardings.params == shardings.opt_state[0].mu == shardings.opt_state[0].nu
    assert shardings.opt_state[0].count.spec == P()


def test_a_parameter_without_a_rule_is_named():
    tree = {"layers": {"router": {"kernel": jnp.zeros((2, 3))}}}
    with pytest.raises(ValueError, match=r"no sharding rule .*layers/router/kernel"):
        infer_shardings(tree, RULES, make_mesh({"fsdp": 8}))


def test_a_dimension_that_does_not_divide_is_named():
    with pytest.raises(
        ValueError, match=r"attention/k/.* is 2, which does not divide over tensor=8"
    ):
        infer_shardings(SHAPES, RULES, make_mesh({"tensor": 8}))


def test_a_rule_longer_than_the_shape_is_refused():
    rules = [("", P(None, "fsdp"))]
    with pytest.raises(ValueError, match=r"a has shape \(4,\), but its rule"):
        infer_shardings({"a": jnp.zeros(4)}, rules, make_mesh({"fsdp": 8}))


def test_rows_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match=r"is 6, .* over data=2 x fsdp=4"):
        put_batch(np.zeros((6, 8)), make_mesh({"data": 2, "fsdp": 4}))


def test_one_axis_may_fill_in():
    mesh = make_mesh({"fsdp": -1, "tensor": 2})
    assert dict(mesh.shape) == {
        "data": 1,
        "fsdp": 4,
        "tensor": 2,
        "sequence": 1,
        "expert": 1,
    }


@pytest.mark.parametrize(
    "axes, message",
    [
        ({"fsdp": 2, "tensor": 2}, "fsdp=2 x tensor=2 takes 4 devices, .* there are 8"),
        ({"fsdp": -1, "tensor": 3}, "fsdp=-1 x tensor=3: 8 devices do not divide by 3"),
        ({"fsdp": -1, "data": -1}, "data and fsdp are both -1"),
        ({"model": 8}, "unknown mesh axis 'model'; axes: data, fsdp"),
        ({"fsdp": 0}, "fsdp is 0"),
        ({}, "no axes takes 1 devices"),
    ],
)
def test_sizes_that_do_not_fit_show_the_arithmetic(axes, message):
    with pytest.raises(ValueError, match=message):
        make_mesh(axes)
