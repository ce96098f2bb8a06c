"""Progress of long phases: a bar on a terminal, a line now and then elsewhere."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from absl import logging
from tqdm import tqdm

SECONDS_BETWEEN_LINES = 15.0


@contextlib.contextmanager
def progress(
    description: str, total: int, *, unit: str, initial: int = 0
) -> Iterator[Callable[..., None]]:
    """Yields advance(n=1, **values), which shows count, rate and time left.

    Args:
        description: of the phase.
        total: units until it is done.
        unit: of the count, such as "trajectory".
        initial: units that were done before.
    """
    if sys.stderr.isatty():
        with tqdm(
            total=total, desc=description, unit=unit, initial=initial, leave=False
        ) as bar:

            def advance(n: int = 1, **values: float) -> None:
                if values:
                    bar.set_postfix(values, refresh=False)
                bar.update(n)

            yield advance
        return
    start = last = time.monotonic()
    done = initial

    def log_line(n: int = 1, **values: float) -> None:
        nonlocal done, last
        done += n
        now = time.monotonic()
        if now - last < SECONDS_BETWEEN_LINES:
            return
        last = now
        meter = tqdm.format_meter(
            done, total, now - start, prefix=description, unit=unit, initial=initial
        )
        shown = ", ".join(f"{k} {v:.3g}" for k, v in values.items())
        logging.info("%s%s", meter, f" {shown}" if shown else "")

    yield log_line
