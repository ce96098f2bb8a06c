"""The compiled programs that decode with one set of weights and one cache."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from agentic_jax.models import decoding
from agentic_jax.models.cache import init_cache
from agentic_jax.models.config import ModelConfig


class Programs:
    """Weights, a cache, and the programs over them, each compiled once per shape.

    Programs are compiled ahead of their first run and then only looked up, so nothing
    recompiles unnoticed. What comes from the host and goes back is NumPy arrays, moved
    explicitly, so that jax_transfer_guard="disallow" holds.

    Args:
        params: of the Transformer, used without a copy. Later ones are put where these
            lie.
        config: of the model; its dtype is that of the cache too.
        rows: of the cache.
        length: positions of each.
        num_steps: most tokens per row that one `decode` samples.
    """

    def __init__(
        self,
        params: Any,
        config: ModelConfig,
        *,
        rows: int,
        length: int,
        num_steps: int,
    ):
        self.rows, self.length = rows, length
        sampling = {"config": config, "num_steps": num_steps}
        self._functions = {
            "decode": partial(decoding.decode, **sampling),
            "decode_part": partial(decoding.decode_part, **sampling),
            "prefill": partial(decoding.prefill, config=config),
            "copy_rows": decoding.copy_rows,
        }
        self._compiled: dict[tuple, Callable] = {}
        params = jax.tree.map(jnp.asarray, params)
        self._shardings = jax.tree.map(lambda x: x.sharding, params)
        self._params = jax.device_put(params, self._shardings)
        self._host_data = _replicated(jax.tree.leaves(self._shardings)[0])
        shape = {"rows": rows, "length": length, "dtype": jnp.dtype(config.dtype)}
        make = partial(init_cache, config, **shape)
        self._make_cache = jax.jit(make, out_shardings=self._host_data)
        self._cache = self._make_cache()

    @property
    def num_compiled(self) -> int:
        """How many programs have been compiled so far."""
        return len(self._compiled)

    def check_params(self, params: Any) -> None:
        """Raises ValueError if these have not the shapes and dtypes of the first."""
        (old, old_tree), (new, new_tree) = (
            jax.tree_util.tree_flatten_with_path(tree)
            for tree in (self._params, params)
        )
        if old_tree != new_tree:
            raise ValueError(f"new weights are a {new_tree}; wanted a {old_tree}")
        for (path, x), (_, y) in zip(old, new, strict=True):
            if (x.shape, x.dtype) != (y.shape, y.dtype):
                raise ValueError(
                    f"new weight {jax.tree_util.keystr(path)} is {y.dtype} {y.shape}; "
                    f"wanted {x.dtype} {x.shape}"
                )

    def set_params(self, params: Any) -> None:
        """Swaps the weights; no copy if they lie where the first ones lay."""
        self._params = jax.device_put(params, self._shardings)

    def reset_cache(self) -> None:
        """Fills the cache with zeros."""
        self._cache = self._make_cache()

    def copy_rows(self, sources: np.ndarray, targets: np.ndarray) -> None:
        """Copies rows of the cache; see decoding.copy_rows."""
        self._cache = self._run("copy_rows", (sources, targets))

    def prefill(
        self,
        tokens: np.ndarray,
        positions: np.ndarray,
        rows: np.ndarray,
        *,
        window: int,
    ) -> None:
        """Fills the cache from known tokens; see decoding.prefill."""
        inputs = (tokens, positions, rows)
        self._cache = self._run("prefill", inputs, self._params, window=window)

    def decode(
        self, draws: decoding.Draws, *, rows: np.ndarray, window: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Samples; see decoding.decode_part.

        Args:
            draws: of R rows, as NumPy arrays.
            rows: [R] int32; if all, in order.
            window: positions read. All rows and the whole length run decoding.decode.

        Returns:
            tokens and log-probabilities [num_steps, R], those of the likeliest tokens
            [num_steps, R, TOP], and how many steps are real [R].
        """
        if (len(rows), window) == (self.rows, self.length):
            out = self._run("decode", (draws,), self._params)
        else:
            inputs = (draws, rows)
            out = self._run("decode_part", inputs, self._params, window=window)
        *sampled, self._cache = out
        return tuple(jax.device_get(sampled))

    def _run(self, name: str, inputs: tuple, *params: Any, **static: int) -> Any:
        """Runs a program, compiling it first if these shapes are new."""
        shapes = tuple(np.shape(x) for x in jax.tree.leaves(inputs))
        key = (name, shapes, tuple(static.values()))
        arguments = (*params, *jax.device_put(inputs, self._host_data))
        if key not in self._compiled:
            function = partial(self._functions[name], **static)
            # Left to the compiler, the cache would come back as the weights are cut.
            jitted = jax.jit(
                function, donate_argnames="cache", out_shardings=self._host_data
            )
            lowered = jitted.lower(*arguments, cache=self._cache)
            self._compiled[key] = lowered.compile()
        return self._compiled[key](*arguments, cache=self._cache)


def _replicated(sharding: jax.sharding.Sharding) -> jax.sharding.Sharding:
    """The same devices, with a whole copy on each."""
    if isinstance(sharding, jax.sharding.NamedSharding):
        return jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())
    return sharding
