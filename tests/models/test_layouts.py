"""The decoder on meshes: embeddings are looked up in a table that stays cut."""

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding

from agentic_jax.models.config import ModelConfig
from agentic_jax.models.hf_weights import param_shapes
from agentic_jax.models.transformer import Transformer
from agentic_jax.sharding import ROWS, RULES, infer_shardings, make_mesh

CONFIG = ModelConfig(
    family="qwen3",
    vocab_size=12,
    width=8,
    num_layers=1,
    num_heads=2,
    num_kv_heads=2,
    head_dim=4,
    mlp_width=8,
    tie_embeddings=True,
)
RNG = np.random.default_rng(0)
TOKENS = RNG.integers(0, 12, (4, 6)).astype(np.int32)
POSITIONS = np.tile(np.arange(6, dtype=np.int32), (4, 1))
PARAMS = jax.tree.map(
    lambda leaf: RNG.normal(size=leaf.shape).astype("f4"), param_shapes(CONFIG)
)
FACTORS = RNG.normal(size=(4, 6, 8)).astype("f4")


def loss(params, *rows):
    return (Transformer(CONFIG).apply({"params": params}, *rows) * FACTORS).sum()


@pytest.mark.parametrize(
    "axes",
    [
        {"fsdp": 2, "tensor": 2, "sequence": 2},
        pytest.param({"data": 2, "expert": 2, "tensor": 2}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_cut_table_gives_the_same_states_and_gradients(axes):
    rows = (TOKENS, POSITIONS, np.ones_like(TOKENS))
    value, grads = jax.jit(jax.value_and_grad(loss))(PARAMS, *rows)
    mesh = make_mesh(axes)
    shardings = infer_shardings(PARAMS, RULES, mesh)
    placed = jax.device_put(PARAMS, shardings)
    on_rows = jax.device_put(rows, NamedSharding(mesh, ROWS))
    step = jax.jit(jax.value_and_grad(loss), out_shardings=(None, shardings))
    with jax.set_mesh(mesh):
        compiled = step.lower(placed, *on_rows).compile()
        mine, my_grads = compiled(placed, *on_rows)
    np.testing.assert_allclose(mine, value, rtol=1e-5)
    for a, b in zip(*map(jax.tree.leaves, (my_grads, grads)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
