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

# One of each kind of answer: the parser of every child starts with its tables filled.
_WARM_UP = (
    ("x^2 + 2x + 1", "(x+1)^2"),
    ("\\frac{\\sqrt{3}}{2}", "\\frac{3}{2\\sqrt{3}}"),
    ("\\left( 3, \\frac{\\pi}{2} \\right)", "(1, 2)"),
    ("(-\\infty, 2) \\cup [3, \\infty)", "x \\in [-2, 7]"),
    ("\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}", "1, 2, 3"),
    ("6 + 9i", "\\sin 30^\\circ + \\log_2 8"),
    ("50\\%", "2^{10} \\cdot 3!"),
)


def main() -> None:
    """Serves until standard input ends."""
    limit, memory_bytes = float(sys.argv[1]), int(sys.argv[2])
    replies = os.dup(1)
    os.dup2(2, 1)  # What a library prints is no reply.
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for prediction, gold in _WARM_UP:
        equal_math(prediction, gold)
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
    while request := sys.stdin.buffer.raw.readline():  # Takes no byte of the next one.
        try:
            asked = json.loads(request)
        except ValueError:
            # Its first bytes went with the child before: that crash is its answer.
            continue
        signal.setitimer(signal.ITIMER_PROF, limit)
        try:
            reply = {"equal": bool(equal_math(asked["prediction"], asked["gold"]))}
        except Exception as error:  # The library raises anything.
            reason = f"{type(error).__name__}: {error}"
            reply = {"equal": False, "failure": "error", "reason": reason}
        signal.setitimer(signal.ITIMER_PROF, 0)
        _reply(replies, {"id": asked["id"], **reply})


def _reply(replies: int, value: object) -> None:
    data = json.dumps(value).encode() + b"\n"
    while data:
        data = data[os.write(replies, data) :]


if __name__ == "__main__":
    main()
