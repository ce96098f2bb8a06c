"""The workdir of a run: its config, and whether it starts or goes on."""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from absl import logging

from agentic_jax.config import changed_keys

# How far, and on which devices; neither changes what is computed but by rounding.
MAY_CHANGE = ("num_steps", "early_stop", "mesh", "batch.rows_per_microbatch")


def open_workdir(
    workdir: pathlib.Path,
    config: Mapping[str, Any],
    *,
    latest: int | None,
    write: bool = True,
) -> None:
    """Writes config.json, after checking it against the run that stands there.

    Args:
        workdir: made if it is missing.
        config: plain nested dicts.
        latest: step of the newest checkpoint, None if there is none.
        write: False only checks.

    Raises:
        ValueError: the workdir holds a run with another config; only MAY_CHANGE may.
            Every changed key is listed.
    """
    path = pathlib.Path(workdir) / "config.json"
    if latest is None:
        logging.info("no checkpoint in %s: starting fresh", workdir)
    else:
        if path.exists():
            changed = changed_keys(json.loads(path.read_text("utf-8")), config)
            lines = [
                f"  {key}: {old!r} -> {new!r}"
                for key, (old, new) in changed.items()
                if not _may_change(key)
            ]
            if lines:
                raise ValueError(
                    f"{workdir} holds a run with another config; only "
                    f"{', '.join(MAY_CHANGE)} may change on resume. Take another "
                    "workdir, or set these back:\n" + "\n".join(lines)
                )
        logging.info("resuming %s from step %d", workdir, latest)
    if not write:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    os.replace(temporary, path)


def _may_change(key: str) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in MAY_CHANGE)
