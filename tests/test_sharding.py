import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from agentic_jax.models.config import ModelConfig
from agentic_jax.models.hf_weights import param_shapes
from agentic_jax.sharding import (
    RULES,
    infer_shardings,
    make_mesh,
    put_batch,
    row_shards,
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


@pytest.fixture(scope="module")
def params():
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda leaf: rng.standard_normal(leaf.shape), SHAPES)


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
    mesh = make_mesh({"data": 2, "fsdp": 2, "expert": 2})
    assert row_shards(mesh) == 8
    with pytest.raises(ValueError, match=r"is 6, .* over data=2 x fsdp=2 x expert=2"):
        put_batch(np.zeros((6, 8)), mesh)


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
