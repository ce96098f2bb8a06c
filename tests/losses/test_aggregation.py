import jax
import numpy as np
import pytest

from agentic_jax.losses.aggregation import (
    fixed_length_weights,
    group_token_mean_weights,
    sequence_mean_weights,
    sequence_sum_weights,
    token_mean_weights,
)

# Row 0 holds a trajectory of 1 sampled token and one of 3; row 1 one that sampled
# nothing and then padding. Prompt 1 has the first, prompt 2 the others.
MASK = np.array([[0, 1, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0]], bool)
IDS = np.array([[1, 1, 2, 2, 2, 2], [1, 1, 1, 0, 0, 0]], np.int32)
PROMPTS = np.array([[1, 1, 2, 2, 2, 2], [2, 2, 2, 0, 0, 0]], np.int32)


@pytest.mark.parametrize(
    "function, options, first, rest",
    [
        (token_mean_weights, {}, 1 / 4, 1 / 4),
        (group_token_mean_weights, {}, 1 / 2, 1 / 6),
        (sequence_mean_weights, {}, 1 / 2, 1 / 6),
        (sequence_sum_weights, {}, 1 / 2, 1 / 2),
        (fixed_length_weights, {"max_tokens": 10}, 1 / 20, 1 / 20),
    ],
)
def test_matches_hand_worked_weights(function, options, first, rest):
    weights = jax.jit(lambda *a: function(*a, **options))(MASK, IDS, PROMPTS)
    expected = np.where(IDS == 1, first, rest) * MASK
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    empty = jax.jit(lambda *a: function(*a, **options))(MASK & False, IDS, PROMPTS)
    np.testing.assert_array_equal(empty, np.zeros_like(weights))


def test_groups_of_unequal_length_differ_from_sequences():
    # Prompt 1: 2 samples of 1 and 3 tokens. Prompt 2: one of 2 tokens.
    mask = np.ones((1, 6), bool)
    ids = np.array([[1, 2, 2, 2, 3, 3]], np.int32)
    prompts = np.array([[1, 1, 1, 1, 2, 2]], np.int32)
    found = group_token_mean_weights(mask, ids, prompts)
    np.testing.assert_allclose(found, [[1 / 8] * 4 + [1 / 4] * 2], rtol=1e-6)
    found = sequence_mean_weights(mask, ids, prompts)
    np.testing.assert_allclose(found, [[1 / 3] + [1 / 9] * 3 + [1 / 6] * 2], rtol=1e-6)


def test_token_mean_of_lengths_1_and_3_is_half_for_any_micro_batch():
    # Losses -A of advantages 1 and -1: (-1 + 3) / 4 = 0.5.
    weights = np.asarray(token_mean_weights(MASK, IDS, PROMPTS))
    loss = np.where(IDS == 1, -1.0, 1.0) * weights
    np.testing.assert_allclose(loss.sum(), 0.5)
    np.testing.assert_allclose(loss[:, :2].sum() + loss[:, 2:].sum(), 0.5)


def test_rejects_an_empty_horizon():
    with pytest.raises(ValueError, match="max_tokens is 0"):
        fixed_length_weights(MASK, IDS, PROMPTS, max_tokens=0)
