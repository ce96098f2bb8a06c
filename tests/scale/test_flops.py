import dataclasses

import pytest

from agentic_jax.models.config import ModelConfig
from agentic_jax.models.hf_weights import param_shapes
from agentic_jax.models.shapes import SHAPES
from agentic_jax.scale.flops import executed_flops, forward_flops, step_flops
from agentic_jax.training.state import param_count

TINY = ModelConfig(
    family="qwen3",
    vocab_size=10,
    width=4,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_dim=3 * 2,
    mlp_width=5,
    qk_norm=True,
)


def test_forward_operations_are_those_counted_by_hand():
    # A layer has 4 x 12 x 2 + 4 x 6 x 2 + 3 x 4 x 5 = 204 weights in products.
    flops = forward_flops(TINY, [7, 7, 7])
    assert flops.layers == 2 * 21 * 204 * 2
    # Half of 7 x 7 pairs, 12 numbers each, in 2 products, in 3 rows and 2 layers.
    assert flops.attention == 0.5 * 49 * 12 * 2 * 2 * 3 * 2
    assert flops.head == 2 * 21 * 4 * 10
    assert step_flops(flops, TINY) == 3 * flops.total


def test_a_token_is_sent_through_its_experts_only():
    experts = dataclasses.replace(
        TINY, family="qwen3_moe", num_experts=8, experts_per_token=2
    )
    more = forward_flops(experts, [1]).layers
    # One gated block of 60 weights more, and a router of 4 x 8.
    assert more - forward_flops(TINY, [1]).layers == 2 * (60 + 32) * 2


@pytest.mark.parametrize(
    "remat, attention, layers, pairs",
    [
        ("none", "dense", 3, 3 * 2),
        ("full", "splash", 4, 4.5),
        ("dots", "chunked", 3, 4.5 * 2),
    ],
)
def test_what_is_made_again_is_counted_again(remat, attention, layers, pairs):
    config = dataclasses.replace(TINY, remat=remat, attention=attention)
    forward = forward_flops(config, [8])
    assert executed_flops(forward, config) == pytest.approx(
        layers * forward.layers + pairs * forward.attention + 4 * forward.head
    )


@pytest.mark.parametrize(
    "name, billions", [("qwen3_4b", 4.02), ("qwen2.5_7b", 7.62), ("qwen3_14b", 14.77)]
)
def test_the_shapes_have_as_many_parameters_as_is_published(name, billions):
    count = param_count(param_shapes(SHAPES[name]))
    assert count / 1e9 == pytest.approx(billions, abs=0.005)
