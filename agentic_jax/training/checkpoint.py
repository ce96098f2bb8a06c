"""Checkpoints: asynchronous, atomic; the newest few are kept, and the best."""

import errno
import pathlib
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as policies

_SCORE = "score"  # What a checkpoint's file of metrics calls it.


class Checkpointer:
    """Saves and restores a train state with a JSON dict beside it.

    Args:
        directory: holds one folder per saved step; a step that was cut short by a
            crash never counts.
        keep: how many of the newest are kept.
        keep_best: keeps besides the one of the highest score, the later one of equals.
        free_bytes: path to the bytes that its disk has left.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        *,
        keep: int,
        keep_best: bool = False,
        free_bytes: Callable[[pathlib.Path], int] = lambda p: shutil.disk_usage(p).free,
    ):
        self._free_bytes, self._keep_best = free_bytes, keep_best
        self.directory = pathlib.Path(directory).absolute()
        kept = [policies.LatestN(keep)]
        if keep_best:
            best = policies.BestN(
                get_metric_fn=_score_of, n=1, keep_checkpoints_without_metrics=False
            )
            kept.append(best)
        self._manager = ocp.CheckpointManager(
            self.directory,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=policies.AnyPreservationPolicy(kept),
                best_fn=_score_of if keep_best else None,
                enable_async_checkpointing=True,
                create=True,
            ),
            item_names=("state", "extra"),
        )

    def latest(self) -> int | None:
        """The newest complete step, or None."""
        return self._manager.latest_step()

    def best(self) -> tuple[int, float] | None:
        """The step of the highest score, and the score; None if none has one."""
        step = self._manager.best_step() if self._keep_best else None
        return None if step is None else (step, _score_of(self._manager.metrics(step)))

    def save(
        self,
        step: int,
        state: Any,
        extra: dict[str, Any],
        *,
        score: float | None = None,
    ) -> None:
        """Starts a save; arrays are copied before this returns.

        Args:
            step: names the checkpoint.
            state: of arrays.
            extra: plain JSON values.
            score: by which the best is chosen; None for none.

        Raises:
            OSError: the disk has no room for it; what is saved already stays.
        """
        needed = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
        free = self._free_bytes(self.directory)
        if free < needed * 1.1:
            raise OSError(
                errno.ENOSPC,
                f"the checkpoint of step {step} needs {needed / 1e6:.0f} MB, "
                f"{free / 1e6:.0f} MB are free in {self.directory}; free some space "
                f"and run the same command: it resumes from step {self.latest()}",
            )
        self._manager.save(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(state), extra=ocp.args.JsonSave(extra)
            ),
            metrics=None if score is None else {_SCORE: score},
        )

    def restore(self, template: Any, step: int | None = None) -> tuple[Any, dict]:
        """The state, laid out like the template's shardings, and the JSON dict.

        Raises:
            FileNotFoundError: nothing is saved there.
        """
        step = self.latest() if step is None else step
        if step is None:
            raise FileNotFoundError(f"no checkpoint in {self.directory}")
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, template)
        restored = self._manager.restore(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardRestore(abstract), extra=ocp.args.JsonRestore()
            ),
        )
        return restored["state"], restored["extra"]

    def wait(self) -> None:
        """Returns when the save under way is on disk; raises what went wrong in it."""
        self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits and frees the threads."""
        self._manager.close()


def _score_of(metrics: Mapping[str, float]) -> float:
    return metrics[_SCORE]
