"""Runs one program on many inputs: compiled once, each input in a fork of its own.

Runs inside zygote children, so it imports the standard library only. What was expected
is never here: the outputs go back and are compared elsewhere.
"""

import contextlib
import json
import os
import signal
import sys
import time

from agentic_jax.sandbox import child

_STDOUT = 1


def run_trials(request: dict[str, object]) -> int:
    """Writes one JSON line an input to stdout; 0 unless the code does not compile.

    Args:
        request: code; inputs, each {"stdin": text} for a program or {"arguments":
            list} for a function; function, its name or ""; timeout, seconds an
            input; max_bytes, kept of each output.
    """
    programs = []
    child.show_lines(request["code"], child.FILE)
    status = child.guarded(
        lambda: programs.append(compile(request["code"], child.FILE, "exec"))
    )
    if status:
        return status
    for given in request["inputs"]:
        line = _trial(programs[0], given, request)
        os.write(_STDOUT, json.dumps(line).encode() + b"\n")
    return 0


def _trial(program, given: dict[str, object], request: dict[str, object]) -> dict:
    """Output and end of one input; its process group is killed."""
    stdin, output, errors = files = [_unnamed_file() for _ in range(3)]
    os.write(stdin, str(given.get("stdin", "")).encode(errors="surrogatepass"))
    os.lseek(stdin, 0, os.SEEK_SET)
    start = time.monotonic()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setsid()
            for target, fd in enumerate(files):
                os.dup2(fd, target)
            os.closerange(3, max(files) + 1)
            child.open_streams()
            child.reseed()
            status = _run(program, given, request["function"])
        finally:
            os._exit(status)
    status = _wait(pid, start + request["timeout"])
    seconds = time.monotonic() - start
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    max_bytes = request["max_bytes"]
    os.close(stdin)
    return {
        "exit_code": None if status is None else os.waitstatus_to_exitcode(status),
        "seconds": seconds,
        "output": _contents(output, max_bytes),
        "errors": _contents(errors, max_bytes),
    }


def _run(program, given: dict[str, object], function: str) -> int:
    """In the fork: the program alone, or one call of a function that it defines."""
    namespace = child.fresh_main()
    if not function:
        return child.finished(child.guarded(lambda: exec(program, namespace)))
    sys.stdout = sys.stderr  # Only the returned value counts.
    namespace["__name__"] = "solution"
    results = []

    def call() -> None:
        exec(program, namespace)
        found = namespace.get(function)
        if found is None:
            found = getattr(namespace["Solution"](), function)
        results.append(json.dumps(found(*given["arguments"]), default=repr))

    status = child.finished(child.guarded(call))
    if status == 0:
        os.write(_STDOUT, results[0].encode())
    return status


def _wait(pid: int, deadline: float) -> int | None:
    """Wait status of a fork, or None if it had to be killed at its deadline."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        left = deadline - time.monotonic()
        if left <= 0:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None
        signal.sigtimedwait([signal.SIGCHLD], left)


def _unnamed_file() -> int:
    return os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)


def _contents(fd: int, max_bytes: int) -> str:
    os.lseek(fd, 0, os.SEEK_SET)
    parts, left = [], max_bytes
    while left and (data := os.read(fd, left)):
        parts.append(data)
        left -= len(data)
    os.close(fd)
    return b"".join(parts).decode(errors="replace")
