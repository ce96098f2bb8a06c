"""Wall-clock and memory metrics of a step; all of them lie under time/."""

import resource
import time


class Clock:
    """Seconds of each phase since the last lap."""

    def __init__(self):
        self._start = self._last = time.monotonic()
        self._seconds: dict[str, float] = {}

    def lap(self, phase: str) -> None:
        """Ends a phase; its seconds since the last lap are added up."""
        now = time.monotonic()
        self._seconds[phase] = self._seconds.get(phase, 0.0) + now - self._last
        self._last = now

    def metrics(self, *, tokens: int) -> dict[str, float]:
        """time/PHASE_s of each phase, time/step_s, token rate and memory.

        Args:
            tokens: sampled and tool-result tokens that the step handled.
        """
        total = time.monotonic() - self._start
        return {
            **{f"time/{phase}_s": s for phase, s in self._seconds.items()},
            "time/step_s": total,
            "time/tokens_per_s": tokens / max(total, 1e-9),
            "time/peak_rss_mb": peak_rss_mb(),
        }


def peak_rss_mb() -> float:
    """The most resident memory that this process has had, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def cpu_seconds() -> float:
    """CPU time of this process and of its finished children."""
    used = [
        resource.getrusage(who)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return sum(u.ru_utime + u.ru_stime for u in used)
