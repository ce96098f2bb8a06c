"""Loss, gradients and updates are the same on every mesh that divides."""

import dataclasses
import functools
import itertools
import math
import pathlib

import jax
import numpy as np
import optax
import pytest

from agentic_jax.losses.logprobs import token_logprobs
from agentic_jax.models import hf_weights, lora
from agentic_jax.models.config import LoraConfig
from agentic_jax.models.transformer import Transformer, head
from agentic_jax.sharding import (
    RULES,
    infer_shardings,
    make_mesh,
    put_batch,
    row_sharding,
)
from tests.golden_models import make

GOLDEN = pathlib.Path(make.__file__).parent
# Epsilon is large, or Adam would blow up what is rounding in the smallest gradients.
ADAM = optax.adamw(1e-2, eps=1e-3)
TARGETS = ("q_proj", "o_proj", "up_proj", "down_proj")
MODELS = {  # Name -> its golden model, and its adapters.
    "dense": ("qwen3_yarn", None),
    "experts": ("qwen3_moe", None),
    "adapters": ("llama_tied_bias", LoraConfig(2, 4.0, TARGETS)),
}
QUICK = [
    ("dense", {"data": 2, "fsdp": 2, "tensor": 2}),
    ("experts", {"fsdp": 2, "tensor": 2, "expert": 2}),
    ("adapters", {"fsdp": 2, "tensor": 2, "sequence": 2}),
]


def layouts(axes):
    """Every way of 1, 2, 4 and 8 devices over the axes; two key heads bound tensor."""
    sizes = itertools.product((1, 2, 4, 8), repeat=len(axes))
    chosen = [dict(zip(axes, s, strict=True)) for s in sizes if math.prod(s) <= 8]
    return [c for c in chosen if c["tensor"] <= 2 and c.get("expert", 1) <= 4]


EVERY = [
    *(("dense", axes) for axes in layouts(("data", "fsdp", "tensor", "sequence"))),
    *(("experts", axes) for axes in layouts(("fsdp", "tensor", "expert"))),
    *(("adapters", axes) for axes in layouts(("fsdp", "tensor"))),
]


def rows(name):
    """Eight rows: those of the reference, four times."""
    with np.load(GOLDEN / MODELS[name][0] / "reference.npz") as reference:
        tokens, positions, logits = (
            np.tile(reference[key], (4, *[1] * (reference[key].ndim - 1)))
            for key in ("tokens", "positions", "logits")
        )
    return (tokens, positions, np.ones_like(tokens)), logits


@functools.cache
def model(name):
    """Config, what is trained, and what is not."""
    golden, adapters = MODELS[name]
    config = hf_weights.read_config(GOLDEN / golden)
    params = jax.device_get(hf_weights.load(GOLDEN / golden, config))
    config = dataclasses.replace(config, layer_loop="scan", lora=adapters)
    if adapters is None:
        return config, params, {}
    rng = np.random.default_rng(0)
    fresh = jax.eval_shape(lambda: lora.init_adapter(jax.random.key(0), config))
    adapter = jax.tree.map(lambda x: 0.1 * rng.standard_normal(x.shape, "f4"), fresh)
    return config, adapter, params


def step(config, trained, frozen, opt_state, tokens, positions, segments):
    def loss(trained):
        params = lora.join(frozen, trained)
        hidden = Transformer(config).apply(
            {"params": params}, tokens, positions, segments
        )
        logprobs = token_logprobs(hidden @ head(params, config), tokens, temperature=1)
        return -logprobs.mean()

    value, gradient = jax.value_and_grad(loss)(trained)
    updates, opt_state = ADAM.update(gradient, opt_state, trained)
    return value, gradient, optax.apply_updates(trained, updates)


@functools.cache
def compiled(name, **axes):
    config, *trees = model(name)
    mesh = make_mesh(axes, jax.devices()[: math.prod(axes.values())])
    shapes = [*trees, jax.eval_shape(ADAM.init, trees[0])]
    shardings = [infer_shardings(tree, RULES, mesh) for tree in shapes]
    with jax.set_mesh(mesh):
        jitted = jax.jit(
            functools.partial(step, config),
            in_shardings=(*shardings, *(row_sharding(mesh),) * 3),
            out_shardings=(None, shardings[0], shardings[0]),
        )
        fast = {"xla_backend_optimization_level": 0}  # Compiles in half the time.
        return mesh, shardings, jitted.lower(*shapes, *rows(name)[0]).compile(fast)


@functools.cache
def stepped(name, **axes):
    """Loss, gradient and new parameters, on the host."""
    mesh, shardings, run = compiled(name, **axes)
    trained, frozen = model(name)[1:]
    trees = (trained, frozen, jax.device_get(ADAM.init(trained)))
    placed = [jax.device_put(x, s) for x, s in zip(trees, shardings, strict=True)]
    return jax.device_get(run(*placed, *put_batch(rows(name)[0], mesh)))


def assert_same(name, axes):
    loss, *trees = stepped(name, **axes)
    expected, *expected_trees = stepped(name, data=1)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
    jax.tree.map(close, trees, expected_trees)


@pytest.mark.parametrize("name, axes", QUICK, ids=str)
def test_loss_gradient_and_update_are_the_same_on_a_mesh(name, axes):
    assert_same(name, axes)


@pytest.mark.slow
@pytest.mark.parametrize("name, axes", EVERY, ids=str)
def test_loss_gradient_and_update_are_the_same_on_every_mesh(name, axes):
    assert_same(name, axes)


@pytest.mark.parametrize("name, axes", QUICK[:2], ids=str)
def test_the_loss_is_that_of_the_reference_logits(name, axes):
    (tokens, *_), logits = rows(name)
    logits = logits.astype(np.float64)[:, :-1]
    normalizer = np.log(np.exp(logits).sum(-1))
    picked = np.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
    expected = (normalizer - picked).sum() / tokens.size
    np.testing.assert_allclose(stepped(name, **axes)[0], expected, rtol=1e-5)


def test_activations_stay_with_their_rows():
    _, _, run = compiled("dense", data=2, fsdp=2, tensor=2)
    program = run.as_text()
    # Weights are gathered; between rows only the embeddings are exchanged that were
    # looked up, and their gradients.
    assert "all-gather" in program and program.count(" all-to-all(") <= 2
