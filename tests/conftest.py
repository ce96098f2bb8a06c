"""One process, 8 virtual CPU devices, strict promotion, a shared compilation cache."""

import os
import pathlib

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["HF_HUB_OFFLINE"] = "1"

import jax  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update(
    "jax_compilation_cache_dir",
    str(pathlib.Path(__file__).parent.parent / ".cache" / "jax"),
)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
