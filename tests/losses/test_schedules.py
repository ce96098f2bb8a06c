import numpy as np

from agentic_jax.losses.schedules import from_entropy, linear


def test_a_ramp_ends_where_it_should():
    ramp = {"start": 0.2, "end": 0.4, "num_steps": 10}
    found = [linear(step, 0.7, **ramp) for step in (0, 5, 10, 99)]
    np.testing.assert_allclose(found, [0.2, 0.3, 0.4, 0.4], rtol=1e-6)


def test_opens_as_entropy_falls():
    options = {"target": 0.5, "least": 0.2, "most": 0.4, "width": 0.2}
    found = [from_entropy(0, h, **options) for h in (0.9, 0.5, 0.45, 0.0)]
    # At 0.45: (0.05 / 0.2 + 0.5) = 0.75 of the way.
    np.testing.assert_allclose(found, [0.2, 0.3, 0.35, 0.4], rtol=1e-6)
