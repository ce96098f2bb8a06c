"""The two checks that every loss function starts with: shapes and precision."""

import jax
import jax.numpy as jnp


def check_same_shape(**arrays: jax.Array) -> None:
    """Raises ValueError unless all arrays have one shape, so that nothing broadcasts.

    Args:
        arrays: by the name that the message shall use; any rank.

    Raises:
        ValueError: two shapes differ; the message lists all of them.
    """
    if len({jnp.shape(array) for array in arrays.values()}) > 1:
        shapes = ", ".join(f"{name} {jnp.shape(x)}" for name, x in arrays.items())
        raise ValueError(f"shapes must be equal: {shapes}")


def at_least_float32(array: jax.Array) -> jax.Array:
    """The array in float32, or in float64 if it came so; any shape."""
    array = jnp.asarray(array)
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))
