import jax
import numpy as np
import pytest

from agentic_jax.losses import KLS

NOW = np.array([[-1.0, -2.0, -1.0]], np.float32)
REF = np.array([[-2.0, -1.0, -1.0]], np.float32)  # d = -1, 1, 0


@pytest.mark.parametrize(
    "name, values, slopes",
    [
        ("none", [0, 0, 0], [0, 0, 0]),
        ("k1", [1, -1, 0], [1, 1, 1]),
        ("k2", [0.5, 0.5, 0], [1, -1, 0]),
        ("k3", [np.exp(-1), np.e - 2, 0], [1 - np.exp(-1), 1 - np.e, 0]),
        ("k3_clamped", [np.exp(-1), np.e - 2, 0], [1 - np.exp(-1), 1 - np.e, 0]),
        ("k3_plus", [np.exp(-1), np.e - 2, 0], [1, -1, 0]),
    ],
)
def test_matches_hand_worked_values_and_slopes(name, values, slopes):
    kl = KLS[name]
    np.testing.assert_allclose(kl(NOW, REF), [values], rtol=1e-6, atol=1e-7)
    grad = jax.grad(lambda x: kl(x, REF).sum())(NOW)
    np.testing.assert_allclose(grad, [slopes], rtol=1e-6, atol=1e-7)


def test_k3_is_unclamped_where_verl_loses_its_gradient():
    now, ref = np.array([[-4.0]], np.float32), np.array([[-1.0]], np.float32)
    slope = jax.grad(lambda x: KLS["k3"](x, ref).sum())(now)
    np.testing.assert_allclose(slope, [[1 - np.exp(3)]], rtol=1e-6)
    assert jax.grad(lambda x: KLS["k3_clamped"](x, ref).sum())(now)[0, 0] == 0
    np.testing.assert_allclose(KLS["k3_clamped"](now, ref), [[10.0]])


def test_absolute_is_the_size_of_the_log_ratio():
    np.testing.assert_allclose(KLS["abs"](NOW, REF), [[1, 1, 0]])


def test_extreme_differences_stay_finite():
    far = np.array([[-1e4, 0.0]], np.float32)
    value, grad = jax.value_and_grad(lambda x: KLS["k3"](x, far[:, ::-1]).sum())(far)
    assert np.isfinite(value) and np.isfinite(grad).all()


def test_the_reference_gets_no_gradient_and_must_be_there():
    for name in ("k1", "k2", "k3", "k3_plus"):
        grad = jax.grad(lambda r, n=name: KLS[n](NOW, r).sum())(REF)
        np.testing.assert_array_equal(grad, np.zeros_like(REF))
    with pytest.raises(ValueError, match="needs ref_logprobs"):
        KLS["k3"](NOW, None)
