"""Options of a surrogate that change from step to step.

All functions of SCHEDULES take (step, entropy), both scalars that may be traced, and
return the value of one option, such as eps_high, for the coming updates.
"""

import jax
import jax.numpy as jnp


def linear(
    step: jax.Array,
    entropy: jax.Array,
    *,
    start: float,
    end: float,
    num_steps: int,
) -> jax.Array:
    """A value that moves linearly with the training step.

    Args:
        step: [] training steps made so far, from 0.
        entropy: [] not looked at.
        start: value at step 0.
        end: value from num_steps on.
        num_steps: length of the ramp, at least 1.

    Returns:
        [] float32.
    """
    progress = jnp.clip(jnp.asarray(step, jnp.float32) / num_steps, 0.0, 1.0)
    return start + (end - start) * progress


def from_entropy(
    step: jax.Array,
    entropy: jax.Array,
    *,
    target: float,
    least: float,
    most: float,
    width: float,
) -> jax.Array:
    """A value that opens when the policy's entropy falls below a target.

        value = least + (most - least) * clip((target - H) / width + 1/2, 0, 1)

    Args:
        step: [] not looked at.
        entropy: [] mean entropy of the step's sampled tokens under the policy that is
            about to be improved, nats.
        target: entropy at which the value is half open, nats.
        least: value when entropy is high.
        most: value when entropy has collapsed.
        width: nats over which it goes from one to the other, above 0.

    Returns:
        [] float32. A NaN entropy gives NaN.

    Source: ours; arXiv:2510.11701 leaves an adaptive clip bound as future work.
    """
    opening = jnp.clip((target - jnp.asarray(entropy)) / width + 0.5, 0.0, 1.0)
    return least + (most - least) * opening
