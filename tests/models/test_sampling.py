import jax
import numpy as np
import pytest

from agentic_jax.models.sampling import position_uniforms, sample

sampled = jax.jit(sample)
uniforms = jax.jit(position_uniforms)
B = 4
LOGITS = np.log(np.array([0.1, 0.2, 0.3, 0.4], np.float32))


def run(logits, u, *, temperature=1.0, top_p=1.0, top_k=0):
    """Tokens and log-probabilities with the same options in each of B rows."""
    rows = np.broadcast_to(logits, (B, len(logits))).astype(np.float32)
    u = np.broadcast_to(u, B).astype(np.float32)
    full = lambda x, dtype: np.full(B, x, dtype)  # noqa: E731
    options = (temperature, np.float32), (top_p, np.float32), (top_k, np.int32)
    return sampled(rows, u, *(full(*option) for option in options))


def test_inverts_the_cumulative_distribution():
    # Cumulative 0.1 0.3 0.6 1.0: u = 0.05 -> 0, 0.25 -> 1, 0.35 -> 2, 0.95 -> 3.
    tokens, logprobs = run(LOGITS, [0.05, 0.25, 0.35, 0.95])
    np.testing.assert_array_equal(tokens, [0, 1, 2, 3])
    np.testing.assert_allclose(logprobs, LOGITS, rtol=1e-5)


def test_temperature_divides_the_logits():
    # T = 0.5 squares the weights: 1 4 9 16 of 30; cumulative 0.033 0.167 0.467 1.
    tokens, logprobs = run(LOGITS, [0.03, 0.1, 0.2, 0.5], temperature=0.5)
    np.testing.assert_array_equal(tokens, [0, 1, 2, 3])
    np.testing.assert_allclose(np.exp(logprobs), np.array([1, 4, 9, 16]) / 30, 1e-5)


def test_temperature_zero_takes_the_most_likely_at_temperature_one():
    tokens, logprobs = run(LOGITS[::-1], [0.0, 0.5, 0.9, 0.99], temperature=0.0)
    np.testing.assert_array_equal(tokens, [0, 0, 0, 0])
    np.testing.assert_allclose(logprobs, np.log([0.4] * 4), rtol=1e-5)


@pytest.mark.parametrize(
    "options, kept",
    [
        ({"top_k": 2}, [2, 3]),
        ({"top_k": 9}, [0, 1, 2, 3]),
        ({"top_p": 0.39}, [3]),
        ({"top_p": 0.41}, [2, 3]),
        ({"top_p": 0.75}, [1, 2, 3]),
        ({"top_k": 2, "top_p": 0.5}, [3]),  # 0.4 of 0.7 is 0.571.
        ({"top_k": 2, "top_p": 0.6}, [2, 3]),
    ],
)
def test_top_k_and_top_p_keep_the_most_likely_and_do_not_renormalise(options, kept):
    seen = set()
    for u in np.linspace(0, 0.999, 10):
        tokens, logprobs = run(LOGITS, u, **options)
        seen.add(int(tokens[0]))
        np.testing.assert_allclose(logprobs, LOGITS[tokens], rtol=1e-5)
    assert sorted(seen) == kept


def test_a_row_without_filters_is_not_touched_by_a_row_with_them():
    logits = np.random.default_rng(0).normal(size=(B, 300)).astype(np.float32)
    u = np.full(B, 0.37, np.float32)
    ones, no_k = np.ones(B, np.float32), np.zeros(B, np.int32)
    alone = sampled(logits, u, ones, ones, no_k)
    beside = sampled(logits, u, ones, ones, np.array([0, 0, 0, 1], np.int32))
    for a, b in zip(alone, beside, strict=True):
        np.testing.assert_array_equal(a[:3], b[:3])
    assert beside[0][3] == np.argmax(logits[3])  # While that one was filtered.


@pytest.mark.parametrize("size", [7, 300])
def test_frequencies_follow_the_softmax(size):
    rng = np.random.default_rng(size)
    logits = rng.normal(size=size).astype(np.float32)
    probs = np.exp(logits) / np.exp(logits).sum()
    # u = (i + 1/2) / n visits each token round(n p) times, to within one.
    n = 4096
    counts = np.zeros(size)
    for u in ((np.arange(n) + 0.5) / n).reshape(-1, B):
        np.add.at(counts, np.asarray(run(logits, u)[0]), 1)
    assert np.abs(counts - n * probs).max() <= 1.1


def test_impossible_tokens_are_never_drawn():
    logits = np.full(40, -np.inf, np.float32)
    logits[[3, 17]] = 0.0
    tokens, logprobs = run(logits, [0.0, 0.49, 0.51, 0.99999994])
    np.testing.assert_array_equal(tokens, [3, 3, 17, 17])
    np.testing.assert_allclose(logprobs, np.log([0.5] * 4), rtol=1e-6)


def test_a_draw_on_a_boundary_takes_the_token_after_it():
    # Cumulative 0.25 0.5 0.75 1: token v owns [v / 4, (v + 1) / 4).
    tokens, _ = run(np.zeros(4, np.float32), [0.0, 0.25, 0.5, 0.75])
    np.testing.assert_array_equal(tokens, [0, 1, 2, 3])


def test_a_draw_that_rounds_up_to_the_total_takes_the_last_possible_token():
    logits = np.full(40, -np.inf, np.float32)
    logits[[3, 17]] = 0.0
    tokens, _ = run(logits, 1.0)
    np.testing.assert_array_equal(tokens, [17] * B)


def test_nan_logits_give_nan_log_probabilities():
    _, logprobs = run(np.array([0.0, np.nan, 1.0, 0.0]), 0.5)
    assert np.isnan(logprobs).all()


def test_uniforms_depend_on_seed_and_position_only():
    seeds = np.array([[0, 1], [0, 1], [0, 2], [1, 1]], np.uint32)
    positions = np.array([5, 6, 5, 5], np.int32)
    u = np.asarray(uniforms(seeds, positions))
    assert len(set(u.tolist())) == 4
    order = [2, 0, 3, 1]
    np.testing.assert_array_equal(u[order], uniforms(seeds[order], positions[order]))


def test_uniforms_are_uniform():
    positions = np.arange(4000, dtype=np.int32)
    u = np.sort(uniforms(np.tile(np.uint32([[0, 7]]), (4000, 1)), positions))
    # Kolmogorov-Smirnov: above 1.63 / sqrt(n) in one of 100 seeds.
    assert np.abs(u - (np.arange(4000) + 0.5) / 4000).max() < 1.63 / np.sqrt(4000)
