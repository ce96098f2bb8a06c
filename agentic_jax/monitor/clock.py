"""Wall-clock and memory metrics of a step; all of them lie under time/."""

import resource
import time

WORK = ("rollout", "score", "credit", "update", "publish", "eval", "save")


class Clock:
    """Seconds of each phase of one step after the other."""

    def __init__(self):
        self._start = self._last = time.monotonic()
        self._seconds: dict[str, float] = {}

    def lap(self, phase: str) -> None:
        """Ends a phase; its seconds since the last lap are added up."""
        now = time.monotonic()
        self._seconds[phase] = self._seconds.get(phase, 0.0) + now - self._last
        self._last = now

    def metrics(self, *, tokens: int) -> dict[str, float]:
        """time/PHASE_s of each phase, time/step_s, rates and memory; starts a new step.

        What a loop does after this call, such as writing it down, counts to the next
        step. time/overhead_fraction is the share of a step outside the phases of WORK:
        packing, metrics and files.

        Args:
            tokens: sampled and tool-result tokens that the step handled.
        """
        now = time.monotonic()
        total = max(now - self._start, 1e-9)
        seconds, self._seconds, self._start = self._seconds, {}, now
        busy = sum(seconds.get(phase, 0.0) for phase in WORK)
        return {
            **{f"time/{phase}_s": s for phase, s in seconds.items()},
            "time/step_s": total,
            "time/overhead_fraction": 1.0 - busy / total,
            "time/tokens_per_s": tokens / total,
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
