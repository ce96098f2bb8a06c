import jax.numpy as jnp
import numpy as np
import pytest

from agentic_jax.training import optimizer


def test_constant_warms_up_from_the_first_update():
    rate = optimizer.constant(learning_rate=1.0, warmup_steps=4)
    got = [float(rate(i)) for i in range(6)]
    np.testing.assert_allclose(got, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0], rtol=1e-6)


def test_cosine_ends_where_it_says():
    rate = optimizer.cosine(
        learning_rate=1.0, warmup_steps=2, decay_steps=10, end_fraction=0.1
    )
    assert float(rate(2)) == pytest.approx(1.0)
    assert float(rate(6)) == pytest.approx(0.55)  # Half way down to 0.1.
    assert float(rate(50)) == pytest.approx(0.1)


def make(**changes):
    options = {
        "schedule": {"name": "constant", "learning_rate": 0.1, "warmup_steps": 1},
        "b1": 0.0,
        "b2": 0.0,
        "eps": 1e-8,
        "weight_decay": 0.5,
        "clip_norm": 1.0,
    }
    return optimizer.adamw(**(options | changes))


def test_only_matrices_decay():
    params = {"kernel": jnp.ones((2, 2)), "lora_b": jnp.ones(2), "scale": jnp.ones(2)}
    zeros = {name: jnp.zeros_like(x) for name, x in params.items()}
    tx = make()
    updates, _ = tx.update(zeros, tx.init(params), params)
    np.testing.assert_allclose(updates["kernel"], -0.05, rtol=1e-6)  # -lr * decay * 1
    np.testing.assert_allclose(updates["lora_b"], -0.05, rtol=1e-6)
    np.testing.assert_array_equal(updates["scale"], 0.0)


def test_an_unknown_schedule_is_named():
    with pytest.raises(ValueError, match="unknown name 'cosin', did you mean 'cosine'"):
        make(schedule={"name": "cosin"})
