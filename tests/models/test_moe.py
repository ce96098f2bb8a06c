import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from agentic_jax.models.config import ModelConfig
from agentic_jax.models.moe import MoeMlp, top_k_routing
from agentic_jax.models.transformer import Transformer, head

CONFIG = ModelConfig(
    family="qwen3_moe",
    vocab_size=32,
    width=8,
    num_layers=1,
    num_heads=2,
    num_kv_heads=1,
    head_dim=8,
    mlp_width=6,
    qk_norm=True,
    num_experts=5,
    experts_per_token=2,
)


def test_routing_matches_hand_worked_values():
    # Probabilities 0.5, 0.3, 0.2 and, in the second row, a tie that the lower id wins.
    logits = np.log([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4]])
    route = jax.jit(top_k_routing, static_argnames=("k", "normalize"))
    weights, chosen = route(logits, k=2, normalize=False)
    np.testing.assert_array_equal(chosen, [[1, 2], [0, 2]])
    np.testing.assert_allclose(weights, [[0.5, 0.3], [0.4, 0.4]], rtol=1e-6)
    weights, _ = route(logits, k=2, normalize=True)
    np.testing.assert_allclose(weights, [[0.625, 0.375], [0.5, 0.5]], rtol=1e-6)


def silu(x):
    return x / (1 + np.exp(-x))


@pytest.mark.parametrize("routed", ["mixed", "all to one"])
def test_every_token_gets_its_experts_however_many_want_the_same(routed):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 7, 8)).astype("f4")
    shapes = jax.eval_shape(MoeMlp(CONFIG).init, jax.random.key(0), x)["params"]
    params = jax.tree.map(lambda s: rng.standard_normal(s.shape, "f4"), shapes)
    if routed == "all to one":
        x[..., 0] = 9.0
        params["router"]["kernel"][0] = [0, 9, 9, -9, -9]
    out = jax.jit(MoeMlp(CONFIG).apply)({"params": params}, x)
    kernels = {name: params["experts"][name]["kernel"] for name in params["experts"]}
    logits = x @ params["router"]["kernel"]
    for place in np.ndindex(2, 7):
        best = np.argsort(-logits[place])[:2]
        weights = np.exp(logits[place][best]) / np.exp(logits[place][best]).sum()
        expected = np.zeros(8)
        for expert, weight in zip(best, weights, strict=True):
            gate, up, down = (kernels[k][expert] for k in ("gate", "up", "down"))
            hidden = silu(x[place] @ gate) * (x[place] @ up)
            expected += weight * (hidden @ down)
        np.testing.assert_allclose(out[place], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_tiny_mixture_learns_and_all_of_it_moves():
    tokens = np.random.default_rng(0).integers(0, 32, (4, 16)).astype(np.int32)
    positions = np.tile(np.arange(16, dtype=np.int32), (4, 1))
    rows = (tokens, positions, np.ones_like(tokens))
    adam = optax.adam(3e-2)

    def loss(params):
        hidden = Transformer(CONFIG).apply({"params": params}, *rows)
        logprobs = jax.nn.log_softmax((hidden @ head(params, CONFIG))[:, :-1])
        return -jnp.take_along_axis(logprobs, tokens[:, 1:, None], -1).mean()

    @jax.jit
    def train(params):
        def update(carry, _):
            value, gradient = jax.value_and_grad(loss)(carry[0])
            updates, state = adam.update(gradient, carry[1])
            return (optax.apply_updates(carry[0], updates), state), value

        return jax.lax.scan(update, (params, adam.init(params)), length=30)

    params = jax.jit(Transformer(CONFIG).init)(jax.random.key(0), *rows)["params"]
    (trained, _), losses = train(params)
    assert losses[0] > 3.4 and losses[-1] < 1.5  # log 32 is 3.47.
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max() > 1e-3, params, trained)
    assert all(jax.tree.leaves(moved))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"experts_per_token": 0}, "experts_per_token is 0 of num_experts 5"),
        ({"experts_per_token": 6}, "experts_per_token is 6 of num_experts 5"),
        ({"family": "qwen3"}, "num_experts is 5 in a qwen3"),
        ({"num_experts": 0, "experts_per_token": 0}, "num_experts is 0 in a qwen3_moe"),
    ],
)
def test_experts_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **changes)
