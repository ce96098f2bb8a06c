"""The process that compares answers for grading.Grader; not for import.

A clean interpreter imports the library once and forks a child for each stretch of work.
The child answers one JSON line for each line it reads. Its CPU timer is left at the
default action, so the kernel ends it even inside one long operation, and the parent
reports what happened and forks the next child in milliseconds.

python -m agentic_jax.rewards.grading_worker CPU_SECONDS MEMORY_BYTES
"""

import json
import os
import resource
import signal
import sys

from agentic_jax.rewards.answers import equal_math


def main() -> None:
    """Serves until standard input ends."""
    limit, memory_bytes = float(sys.argv[1]), int(sys.argv[2])
    replies = os.dup(1)
    os.dup2(2, 1)  # What a library prints is no reply.
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    equal_math("x + x", "2x")  # Imports the library and fills its caches.
    _reply(replies, {})  # Ready.
    while True:
        pid = os.fork()
        if pid == 0:
            _serve(replies, limit)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            return
        late = os.WTERMSIG(status) == signal.SIGPROF
        reason = f"the process ended by signal {os.WTERMSIG(status)}"
        failure = "timeout" if late else "crash"
        _reply(replies, {"equal": False, "failure": failure, "reason": reason})


def _serve(replies: int, limit: float) -> None:
    """Answers requests until there are no more, or until the kernel ends it."""
    while request := _read_line():
        asked = json.loads(request)
        signal.setitimer(signal.ITIMER_PROF, limit)
        try:
            reply = {"equal": bool(equal_math(asked["prediction"], asked["gold"]))}
        except Exception as error:  # The library raises anything.
            reason = f"{type(error).__name__}: {error}"
            reply = {"equal": False, "failure": "error", "reason": reason}
        signal.setitimer(signal.ITIMER_PROF, 0)
        _reply(replies, {"id": asked["id"], **reply})


def _read_line() -> bytes:
    """One request, unbuffered, so that a child takes nothing of the next one's."""
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 65_536)  # One request is in flight at a time.
        if not part:
            return b""
        line += part
    return line


def _reply(replies: int, value: object) -> None:
    data = json.dumps(value).encode() + b"\n"
    while data:
        data = data[os.write(replies, data) :]


if __name__ == "__main__":
    main()
