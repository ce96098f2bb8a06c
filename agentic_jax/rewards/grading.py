"""Compares answers in processes that can be killed."""

import asyncio
import dataclasses
import itertools
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from absl import logging

from agentic_jax.rewards.answers import equal_quickly

_MEMORY_BYTES = 4 << 30  # Of one worker's address space.
_STARTUP_SECONDS = 120.0  # Imports sympy, perhaps on a busy machine.
_REMEMBERED = 10_000  # Verdicts; samples of one problem often give the same answer.


class VerifierError(RuntimeError):
    """A verifier could not decide; the sample is a fault and never a silent 0."""


class GradingTimeout(VerifierError):
    """A comparison took too long."""


class GradingCrash(VerifierError):
    """A comparison raised, or its process died."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What came out of one comparison.

    Attributes:
        equal: the answers are equal; False wherever there is a failure.
        failure: "" if the comparison ended, else how it did not: it ran out of time,
            raised an error, or its process died.
        reason: of the failure, in words.
    """

    equal: bool
    failure: Literal["", "timeout", "error", "crash"] = ""
    reason: str = ""


class Grader:
    """A pool of processes for answers.equal_math, usable from any thread or event loop.

    Workers are fresh interpreters, started when first needed, not forks of this one.
    Equal strings and plain numbers are decided here and cost no process.

    Args:
        workers: processes; at most this many comparisons run at once.
        timeout: CPU seconds for one comparison, so that a busy machine changes no
            verdict. A worker that gives no sign of life for ten times as long, plus
            30 s, is killed and replaced.

    Raises:
        ValueError: workers or timeout is not positive and finite.
    """

    def __init__(self, *, workers: int = 2, timeout: float = 1.0):
        if workers < 1 or not 0 < timeout < float("inf"):
            raise ValueError(
                f"workers is {workers} and timeout {timeout}; both must be positive"
            )
        self._workers = workers
        self._timeout = timeout
        self._closed = False
        self._numbers = itertools.count()
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="grader")
        self._idle: queue.SimpleQueue[subprocess.Popen | None] = queue.SimpleQueue()
        for _ in range(workers):
            self._idle.put(None)
        self._processes: set[subprocess.Popen] = set()
        self._known: dict[tuple[str, str], Verdict] = {}
        self._lock = threading.Lock()
        self._counts = {"quick": 0, "compared": 0, "timeout": 0, "error": 0, "crash": 0}

    @property
    def counts(self) -> dict[str, int]:
        """Verdicts so far: quick, compared (in a process), timeout, error, crash."""
        with self._lock:
            return dict(self._counts)

    async def verdict(self, prediction: str, gold: str) -> Verdict:
        """Compares two answers; failures are part of the verdict and are counted."""
        quick = equal_quickly(prediction, gold)
        if quick is not None:
            self._count("quick")
            return Verdict(quick)
        work = self._threads.submit(self._compare, prediction, gold)
        return await asyncio.wrap_future(work)

    async def grade(self, prediction: str, gold: str) -> bool:
        """Whether two answers are equal.

        Raises:
            GradingTimeout: the comparison took too long.
            GradingCrash: it raised, or its process died.
        """
        verdict = await self.verdict(prediction, gold)
        if verdict.failure:
            kind = GradingTimeout if verdict.failure == "timeout" else GradingCrash
            raise kind(f"comparing {prediction[:80]!r} with {gold[:80]!r}: {verdict}")
        return verdict.equal

    async def start(self) -> None:
        """Starts every worker now, so that no comparison waits for one.

        Raises:
            GradingCrash: a worker does not start.
        """
        starting = [self._threads.submit(self._take) for _ in range(self._workers)]
        workers = await asyncio.gather(
            *map(asyncio.wrap_future, starting), return_exceptions=True
        )
        errors = [error for error in workers if isinstance(error, BaseException)]
        for worker in workers:
            if worker not in errors:
                self._idle.put(worker)
        if errors:
            raise GradingCrash(f"a worker does not start: {errors[0]}") from errors[0]

    def close(self) -> None:
        """Kills the workers; comparisons that wait or run fail."""
        with self._lock:
            self._closed = True
            processes = list(self._processes)
        for process in processes:
            _kill(process)
        self._threads.shutdown(wait=True, cancel_futures=True)
        for process in processes:
            self._discard(process)

    def _compare(self, prediction: str, gold: str) -> Verdict:
        """One comparison, in a thread of ours and a worker process."""
        worker = None
        try:
            worker = self._take()
            verdict = self._known.get((prediction, gold))
            if verdict is None:
                verdict = self._ask(worker, prediction, gold)
            self._idle.put(worker)
        except (OSError, EOFError) as error:
            logging.warning("a grading worker was lost: %r", error)
            verdict = Verdict(False, "crash", repr(error))
            if worker is not None:
                self._discard(worker)
                self._idle.put(None)
        with self._lock:
            self._counts[verdict.failure or "compared"] += 1
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            if verdict.failure != "crash":  # The rest would come out the same again.
                self._known[prediction, gold] = verdict
        return verdict

    def _take(self) -> subprocess.Popen:
        """A ready worker, started if there is none; its place is kept if it fails."""
        worker = self._idle.get()
        if worker is not None:
            return worker
        try:
            worker = self._spawn()
            _read_line(worker, seconds=_STARTUP_SECONDS)
        except (OSError, EOFError):
            if worker is not None:
                self._discard(worker)
            self._idle.put(None)
            raise
        return worker

    def _spawn(self) -> subprocess.Popen:
        """A new worker that has yet to import its library."""
        limits = [str(self._timeout), str(_MEMORY_BYTES)]
        with self._lock:
            if self._closed:
                raise EOFError("the grader is closed")
            worker = subprocess.Popen(
                [sys.executable, "-m", "agentic_jax.rewards.grading_worker", *limits],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,  # So that its children can be killed with it.
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                },
            )
            self._processes.add(worker)
        return worker

    def _ask(self, worker: subprocess.Popen, prediction: str, gold: str) -> Verdict:
        """Sends one request and waits for its reply, skipping those of earlier ones."""
        number = next(self._numbers)
        request = {"id": number, "prediction": prediction, "gold": gold}
        worker.stdin.write(json.dumps(request).encode() + b"\n")
        while True:
            reply = json.loads(_read_line(worker, seconds=10 * self._timeout + 30))
            if reply.pop("id", number) == number:
                return Verdict(**reply)

    def _discard(self, worker: subprocess.Popen) -> None:
        """Kills a worker with its child, and reaps it; done twice, it does nothing."""
        with self._lock:
            if worker not in self._processes:
                return
            self._processes.remove(worker)
        _kill(worker)
        worker.wait()
        while os.read(worker.stdout.fileno(), 65_536):
            continue  # Until its child has let go of the pipe too.
        worker.stdin.close()
        worker.stdout.close()

    def _count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1


def _kill(worker: subprocess.Popen) -> None:
    """Sends SIGKILL to a worker and its child."""
    try:
        os.killpg(worker.pid, signal.SIGKILL)
    except ProcessLookupError:
        logging.info("grading worker %d had ended by itself", worker.pid)


def _read_line(worker: subprocess.Popen, *, seconds: float) -> bytes:
    """One line of a worker and nothing beyond it; TimeoutError or EOFError if none."""
    descriptor, line = worker.stdout.fileno(), b""
    poll = select.poll()  # Unlike select(), it takes descriptors above 1,023.
    poll.register(descriptor, select.POLLIN)
    deadline = time.monotonic() + seconds
    while not line.endswith(b"\n"):
        if not poll.poll(max(deadline - time.monotonic(), 0.0) * 1_000):
            raise TimeoutError(f"no reply from grading worker {worker.pid}")
        part = os.read(descriptor, 1)
        if not part:
            raise EOFError(f"grading worker {worker.pid} ended")
        line += part
    return line
