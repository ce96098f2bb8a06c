"""Credit on one step of two prompts: see the table of samples in `step`."""

import jax
import numpy as np
import pytest

from agentic_jax.batch import Batch, Outcome, Scores
from agentic_jax.losses import CREDITS
from agentic_jax.losses.arpo import shared_prefix_mean
from agentic_jax.losses.credit import scale_by_entropy
from agentic_jax.losses.entropy import (
    entropy_change,
    entropy_change_ratio,
    turns_of,
)


@pytest.fixture(scope="module")
def step():
    """Row 0: sample a = prompt, call x2, result, call, result, answer; sample b.

    Prompt 1 has a (reward 1) and b (reward 0), prompt 2 has c (reward 1) in row 1 and
    a fault. Turn entropies: a 2, 1, 3; b 1, 2 (its markup token has 9); c 1.
    """
    ids = [[1] * 8 + [2] * 5 + [0], [1] * 3 + [0] * 11]
    turns = [[0, 1, 1, 1, 2, 2, 3, 3, 0, 1, 1, 1, 2, 0], [0, 1, 1] + [0] * 11]
    mask = [[0, 1, 1, 0, 1, 0, 1, 1, 0, 1, 1, 0, 1, 0], [0, 1, 1] + [0] * 11]
    calls = [[0, 2, 2, 2, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0], [0] * 14]
    entropy = [[7, 1, 3, 7, 1, 7, 2, 4, 7, 1, 9, 7, 2, 7], [7, 1, 1] + [7] * 11]
    markup = np.zeros((2, 14), bool)
    markup[0, 10] = True
    batch = Batch(
        tokens=np.ones((2, 14), np.int32),
        positions=np.zeros((2, 14), np.int32),
        segment_ids=np.array(ids, np.int32),
        prompt_ids=np.array(ids, np.int32),
        turn_ids=np.array(turns, np.int32),
        mask=np.array(mask, bool),
        behavior_logprobs=np.zeros((2, 14), np.float32),
        turn_calls=np.array(calls, np.int32),
        call_mask=markup,
    )
    rewards = np.array([[1.0, 0.0], [1.0, np.nan]], np.float32)
    outcome = Outcome(
        reward=rewards,
        score=rewards,
        num_calls=np.array([[3, 1], [0, 0]], np.int32),
        valid=np.array([[True, True], [True, False]]),
        row=np.array([[0, 0], [1, 0]], np.int32),
        segment=np.array([[1, 2], [1, 0]], np.int32),
    )
    entropy = np.array(entropy, np.float32)
    return outcome, Scores(entropy, entropy), batch


def credit(name, step, **options):
    return np.asarray(jax.jit(lambda *a: CREDITS[name](*a, **options))(*step))


def at_samples(values):
    """The values at the sampled tokens of a, b and c."""
    a, b, c = [1, 2, 4, 6, 7], [9, 10, 12], [1, 2]
    found = np.zeros_like(values)
    found[0, a + b] = values[0, a + b]
    found[1, c] = values[1, c]
    np.testing.assert_array_equal(values, found)  # 0 everywhere else.
    return values[0, a], values[0, b], values[1, c]


@pytest.mark.parametrize(
    "name, options, right, wrong",
    [
        # Rewards 1 and 0: mean 1/2, std 1/sqrt 2.
        ("group_normalized", {"eps": 0.0}, 0.5**0.5, -(0.5**0.5)),
        ("centered", {}, 0.5, -0.5),
        ("leave_one_out", {}, 1.0, -1.0),
        ("opo", {}, 3 / 8, -5 / 8),  # 5 and 3 tokens: baseline 5/8.
        # All rewards 1, 0, 1: std 1/sqrt 3.
        ("batch_scaled", {"eps": 0.0}, 0.5 * 3**0.5, -0.5 * 3**0.5),
    ],
)
def test_every_sampled_token_gets_the_value_of_its_sample(
    step, name, options, right, wrong
):
    a, b, c = at_samples(credit(name, step, **options))
    np.testing.assert_allclose(a, right, rtol=1e-6)
    np.testing.assert_allclose(b, wrong, rtol=1e-6)
    np.testing.assert_array_equal(c, 0.0)


def test_whitening_is_over_all_sampled_tokens(step):
    a, b, c = at_samples(credit("reinforce_plus_plus_baseline", step, eps=0.0))
    tokens = np.array([0.5] * 5 + [-0.5] * 3 + [0.0] * 2)
    z = (tokens - tokens.mean()) / tokens.std(ddof=1)
    np.testing.assert_allclose(a, z[0], rtol=1e-5)
    np.testing.assert_allclose(b, z[5], rtol=1e-5)
    np.testing.assert_allclose(c, z[8], rtol=1e-5)


def test_turn_entropies_and_their_changes(step):
    _, scores, batch = step
    turns = turns_of(batch, scores.entropy, markup="in")
    # Columns: prompt, three turns of a, prompt, two turns of b, padding.
    np.testing.assert_allclose(turns.entropy[0, 1:8], [0, 2, 1, 3, 0, 5, 2])
    np.testing.assert_array_equal(turns.calls[0, 1:8], [0, 2, 1, 0, 0, 1, 0])
    change = entropy_change(turns)
    np.testing.assert_allclose(change[0, 1:8], [0, -1, 2, 0, 0, -3, 0])
    ratio = entropy_change_ratio(turns, eps=1e-8)
    np.testing.assert_allclose(ratio[0, 2:4], [-0.5, 2.0], rtol=1e-6)
    without = turns_of(batch, scores.entropy, markup="out")
    np.testing.assert_allclose(entropy_change(without)[0, 6], 1.0)


def test_sparse_reward_is_scaled_by_the_share_of_calls_that_lowered_entropy(step):
    # a: 2 of 3 calls; b: reward 0; mean 1/3, std sqrt(2)/3.
    a, b, c = at_samples(credit("tepo_sparse", step, eps=0.0, markup="in"))
    np.testing.assert_allclose(a, 0.5**0.5, rtol=1e-6)
    np.testing.assert_allclose(b, -(0.5**0.5), rtol=1e-6)
    np.testing.assert_array_equal(c, 0.0)


@pytest.mark.parametrize(
    "final, last_a, last_b",
    [
        ("final_traj", 0.5**0.5, -(0.5**0.5)),
        ("final_zero", 0.0, 0.0),
        ("final_last_tool", "second", "b"),
    ],
)
def test_dense_rewards_are_normalised_over_all_calls_of_the_group(
    step, final, last_a, last_b
):
    options = {"alpha": 0.5, "eps": 0.0, "markup": "in", "final": final}
    a, b, _ = at_samples(credit("tepo_dense", step, **options))
    # Four calls: 1.5, 1.5 (one turn), 1, and b's 0.
    rewards = np.array([1.5, 1.5, 1.0, 0.0])
    z = (rewards - rewards.mean()) / rewards.std(ddof=1)
    named = {"second": z[2], "b": z[3]}
    np.testing.assert_allclose(a[:3], z[[0, 1, 2]], rtol=1e-5)
    np.testing.assert_allclose(a[3:], named.get(last_a, last_a), rtol=1e-5)
    np.testing.assert_allclose(b[:2], z[3], rtol=1e-5)
    np.testing.assert_allclose(b[2], named.get(last_b, last_b), rtol=1e-5)


def test_turn_credit_says_what_the_batch_lacks(step):
    import dataclasses

    outcome, scores, batch = step
    bare = dataclasses.replace(batch, turn_calls=None)
    with pytest.raises(ValueError, match="needs batch.turn_calls"):
        CREDITS["tepo_sparse"](outcome, scores, bare, eps=0.0, markup="in")
    with pytest.raises(ValueError, match="markup is 'both'"):
        CREDITS["tepo_sparse"](outcome, scores, batch, eps=0.0, markup="both")
    with pytest.raises(ValueError, match="final is 'none'"):
        options = {"alpha": 0.5, "eps": 0.0, "markup": "in", "final": "none"}
        CREDITS["tepo_dense"](outcome, scores, batch, **options)
    with pytest.raises(ValueError, match="needs outcome.components"):
        CREDITS["per_reward_normalized"](*step, weights=(1.0,), eps=0.0)


def test_uncertain_tokens_get_more_of_the_advantage():
    entropy = np.array([[1.0, 3.0, 50.0]], np.float32)
    mask = np.array([[True, True, False]])
    found = scale_by_entropy(np.full((1, 3), 2.0), entropy, mask, alpha=0.2)
    # z = -+1/sqrt 2
    z = 0.5**0.5
    np.testing.assert_allclose(found, [[2 - 0.4 * z, 2 + 0.4 * z, 0.0]], rtol=1e-6)


def test_shared_prefixes_get_the_mean_of_their_samples():
    tokens = np.array([[5, 6, 7], [5, 6, 8], [5, 9, -1], [4, 6, 7]], np.int32)
    valid = np.array([True, True, True, True])
    advantages = np.array([3.0, 1.0, -1.0, -3.0], np.float32)
    found = jax.jit(shared_prefix_mean)(tokens, valid, advantages)
    expected = [[1, 2, 3], [1, 2, 1], [1, -1, 0], [-3, -3, -3]]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    without = jax.jit(shared_prefix_mean)(
        tokens, np.array([True, True, False, True]), advantages
    )
    np.testing.assert_allclose(without[:3, 0], [2, 2, 0], rtol=1e-6)


def test_hard_advantage_averages_what_packed_samples_share(step):
    # a and b agree in all 5 tokens of b: both get the mean 0 there.
    a, b, _ = at_samples(credit("arpo_hard", step, eps=0.0))
    z = 0.5**0.5
    np.testing.assert_allclose(a, [0, 0, 0, z, z], atol=1e-6)
    np.testing.assert_allclose(b, [0, 0, 0], atol=1e-6)
