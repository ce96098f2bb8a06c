"""What the entry points share: a config flag, a workdir flag, logging and errors."""

import ctypes
import logging as standard_logging
import os
import pathlib
import sys
from collections.abc import Callable

import jax
from absl import app, flags, logging
from ml_collections import config_flags

_MALLOPT = {-1: 2**31 - 1, -2: 64 << 20, -3: 32 << 20}  # Trim, top pad, mmap: bytes.
USER_ERRORS = (ValueError, OSError, RuntimeError, FloatingPointError)


def define_config(help_text: str) -> flags.FlagHolder:
    """--config=FILE.py[:variant], with --config.KEY=VALUE overrides."""
    how = f"{help_text} Overrides: --config.KEY=VALUE, once for each key."
    return config_flags.DEFINE_config_file("config", None, how, lock_config=True)


def run(main: Callable[[list[str]], None]) -> None:
    """app.run with INFO logging, and one line instead of a traceback for user errors.

    --pdb_post_mortem or AGENTIC_JAX_TRACEBACK=1 keep the traceback.
    """

    def wrapped(argv: list[str]) -> None:
        if len(argv) > 1:
            raise app.UsageError(f"unexpected arguments: {argv[1:]}")
        prepare()
        try:
            main(argv)
        except USER_ERRORS as error:
            if os.environ.get("AGENTIC_JAX_TRACEBACK"):
                raise
            logging.error("%s", error)
            sys.exit(1)

    jax.config.config_with_absl()
    app.run(wrapped)


def prepare() -> None:
    """INFO logging of ours, warnings of others, a compilation cache, kept memory."""
    _keep_freed_memory()
    logging.set_verbosity(logging.INFO)
    logging.get_absl_handler().addFilter(_is_ours_or_a_warning)
    cache = pathlib.Path.home() / ".cache" / "agentic_jax" / "jax"
    if not jax.config.jax_compilation_cache_dir:
        jax.config.update("jax_compilation_cache_dir", str(cache))


def _keep_freed_memory() -> None:
    """Lets glibc reuse what is freed, up to 32 MB a piece, and not give it back.

    XLA on the CPU allocates every temporary anew in every step, and fresh pages from
    the kernel cost a third of a small model's training time.
    """
    mallopt = (
        getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    )
    for option, value in _MALLOPT.items() if mallopt else ():
        mallopt(option, value)


def _is_ours_or_a_warning(record: standard_logging.LogRecord) -> bool:
    ours = "orbax" not in record.pathname and "jax/_src" not in record.pathname
    return ours or record.levelno >= standard_logging.WARNING
