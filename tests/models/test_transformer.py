import dataclasses
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentic_jax.models import hf_weights
from agentic_jax.models.cache import init_cache
from agentic_jax.models.config import ModelConfig
from agentic_jax.models.transformer import Transformer, forward_cached, head, unstack
from tests.golden_models import make

GOLDEN = pathlib.Path(make.__file__).parent
CONFIG = ModelConfig(
    family="qwen3",
    vocab_size=32,
    width=16,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    mlp_width=24,
    qk_norm=True,
)
RNG = np.random.default_rng(0)
TOKENS = RNG.integers(0, 32, (2, 16)).astype(np.int32)
POSITIONS = np.tile(np.arange(16, dtype=np.int32), (2, 1))
ONES = np.ones_like(TOKENS)


def forward_with(config):
    return jax.jit(lambda params, *rows: Transformer(config).apply(params, *rows))


@pytest.fixture(scope="module")
def params():
    init = jax.jit(Transformer(CONFIG).init)
    return init(jax.random.key(0), TOKENS, POSITIONS, ONES)["params"]


@pytest.fixture(scope="module")
def forward():
    return forward_with(CONFIG)


@pytest.mark.parametrize("name", make.MODELS)
def test_logits_equal_those_of_transformers(name):
    with np.load(GOLDEN / name / "reference.npz") as reference:
        expected = dict(reference)
    logits = our_logits(GOLDEN / name, expected["tokens"], expected["positions"])
    assert np.abs(logits - expected["logits"]).max() < 2e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", make.MODELS)
def test_logits_equal_those_of_transformers_run_now(name, tmp_path):
    make.make(name, tmp_path)
    expected = make.reference(tmp_path)
    logits = our_logits(tmp_path, expected["tokens"], expected["positions"])
    assert np.abs(logits - expected["logits"]).max() < 2e-4


def our_logits(path, tokens, positions):
    config = hf_weights.read_config(path)
    params = hf_weights.load(path, config)

    @jax.jit
    def logits(params):
        ones = jnp.ones_like(tokens)
        hidden = Transformer(config).apply({"params": params}, tokens, positions, ones)
        return hidden @ head(params, config)

    return logits(params)


def test_packed_rows_give_what_separate_rows_give(params, forward):
    # Segments of 7 and 6 tokens in one row, 3 of padding.
    packed = TOKENS[:1]
    positions = np.array([[*range(7), *range(6), 0, 0, 0]], np.int32)
    segments = np.array([[1] * 7 + [2] * 6 + [0] * 3], np.int32)
    together = forward({"params": params}, packed, positions, segments)
    for start, stop in ((0, 7), (7, 13)):
        alone = np.zeros_like(packed)
        alone[0, : stop - start] = packed[0, start:stop]
        ids = (np.arange(16) < stop - start).astype(np.int32)[None]
        row = forward({"params": params}, alone, POSITIONS[:1] * ids, ids)
        np.testing.assert_allclose(
            together[0, start:stop], row[0, : stop - start], atol=1e-5
        )


def test_a_token_changes_no_state_before_it(params, forward):
    changed = TOKENS.copy()
    changed[:, 9] = (changed[:, 9] + 1) % 32
    before = forward({"params": params}, TOKENS, POSITIONS, ONES)
    after = forward({"params": params}, changed, POSITIONS, ONES)
    np.testing.assert_array_equal(before[:, :9], after[:, :9])
    assert np.all(np.abs(before[:, 9:] - after[:, 9:]).max(-1) > 1e-3)


def test_padding_rows_are_finite_with_finite_gradients(params):
    zeros = np.zeros_like(TOKENS)
    config = dataclasses.replace(CONFIG, layer_loop="scan")

    @jax.jit
    @jax.value_and_grad
    def loss(params):
        hidden = Transformer(config).apply({"params": params}, zeros, zeros, zeros)
        return jnp.square(hidden).sum()

    assert all(np.isfinite(x).all() for x in jax.tree.leaves(loss(params)))


@functools.cache
def compiled_gradient(layer_loop, remat, attention="dense"):
    config = dataclasses.replace(
        CONFIG, layer_loop=layer_loop, remat=remat, attention=attention
    )

    def loss(params):
        hidden = Transformer(config).apply({"params": params}, TOKENS, POSITIONS, ONES)
        logprobs = jax.nn.log_softmax((hidden @ head(params, config))[:, :-1])
        return -jnp.take_along_axis(logprobs, TOKENS[:, 1:, None], -1).mean()

    shapes = hf_weights.param_shapes(config)
    fast = {"xla_backend_optimization_level": 0}  # Compiles in half the time.
    return jax.jit(jax.value_and_grad(loss)).lower(shapes).compile(fast)


@pytest.mark.parametrize(
    "options",
    [
        ("scan", "none"),
        ("scan", "dots"),
        ("unroll", "full"),
        ("scan", "full", "chunked"),
    ],
)
def test_loop_remat_and_attention_change_neither_loss_nor_gradient(params, options):
    for a, b in zip(
        jax.tree.leaves(compiled_gradient("unroll", "none")(params)),
        jax.tree.leaves(compiled_gradient(*options)(params)),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_remat_keeps_less_for_the_backward_pass():
    none, dots, full = (
        compiled_gradient("scan", remat).memory_analysis().temp_size_in_bytes
        for remat in ("none", "dots", "full")
    )
    assert full < dots < none


@pytest.mark.parametrize("split", [1, 9, 15])
def test_cached_forward_equals_the_whole_forward(params, forward, split):
    whole = forward({"params": params}, TOKENS, POSITIONS, ONES)
    cached = jax.jit(forward_cached, static_argnums=1)
    cache = init_cache(CONFIG, rows=2, length=16, dtype=jnp.float32)
    # Both calls have 16 tokens: positions at the cache's length are padding.
    for start, stop in ((0, split), (split, 16)):
        tokens, positions = np.zeros_like(TOKENS), np.full_like(POSITIONS, 16)
        tokens[:, : stop - start] = TOKENS[:, start:stop]
        positions[:, : stop - start] = POSITIONS[:, start:stop]
        hidden, cache = cached(params, CONFIG, tokens, positions, cache)
        np.testing.assert_allclose(
            hidden[:, : stop - start], whole[:, start:stop], atol=1e-5
        )


def test_unstacked_parameters_decode_alike(params):
    cache = init_cache(CONFIG, rows=2, length=16, dtype=jnp.float32)
    split = {**params, "layers": unstack(params["layers"], CONFIG.num_layers)}
    cached = jax.jit(forward_cached, static_argnums=1)
    a, _ = cached(params, CONFIG, TOKENS, POSITIONS, cache)
    b, _ = cached(split, CONFIG, TOKENS, POSITIONS, cache)
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_layers_start_different_and_the_output_starts_near_uniform(params, forward):
    kernel = params["layers"]["mlp"]["up"]["kernel"]
    assert np.abs(kernel[0] - kernel[1]).max() > 0.1
    logits = forward({"params": params}, TOKENS, POSITIONS, ONES) @ head(params, CONFIG)
    assert np.std(logits) < 0.2


def test_bfloat16_compute_keeps_float32_parameters_and_stays_close(params, forward):
    config = dataclasses.replace(CONFIG, dtype="bfloat16", layer_loop="scan")
    rows = TOKENS, POSITIONS, ONES
    hidden = forward_with(config)({"params": params}, *rows)
    assert hidden.dtype == jnp.bfloat16
    exact = forward({"params": params}, *rows)
    # States are of size 1, bfloat16 keeps 8 bits and layers add their errors.
    assert np.abs(hidden.astype(np.float32) - exact).mean() < 2e-2
