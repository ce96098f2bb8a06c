"""What a forked child does: limits, then the code, then an exit that flushes.

Runs inside zygotes, so it imports the standard library only.
"""

import ast
import atexit
import builtins
import contextlib
import linecache
import marshal
import os
import resource
import signal
import socket
import struct
import sys
import threading
import traceback
import types
from collections.abc import Callable

FILE = "main.py"  # What tracebacks call the code.
_OURS = os.path.dirname(__file__)
_LIMITS = {
    "data_bytes": resource.RLIMIT_DATA,
    "cpu_seconds": resource.RLIMIT_CPU,
    "disk_bytes": resource.RLIMIT_FSIZE,
    "max_open_files": resource.RLIMIT_NOFILE,
    "max_processes": resource.RLIMIT_NPROC,
}
_CHANNEL = 3  # Descriptor that a session's cells come from.
_CELL = struct.Struct("<II")  # Number of the cell, exit status.
_ZEROED = (resource.RLIMIT_CORE, resource.RLIMIT_MSGQUEUE, resource.RLIMIT_MEMLOCK)


def apply_limits(limits: dict[str, int]) -> None:
    """Lowers this process's hard limits; children inherit them."""
    for name, kind in _LIMITS.items():
        if name in limits:
            _, hard = resource.getrlimit(kind)
            wanted = limits[name]
            wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            # One second more before SIGKILL lets SIGXCPU name the reason.
            extra = 1 if kind == resource.RLIMIT_CPU else 0
            resource.setrlimit(kind, (wanted, wanted + extra))
    for kind in _ZEROED:
        resource.setrlimit(kind, (0, 0))


def write_files(files: dict[str, bytes]) -> None:
    """Puts input files into the working directory; their paths were checked."""
    for path, data in files.items():
        parent = os.path.dirname(path)
        if parent:
            os.makedirs(parent, exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)


def open_streams() -> None:
    """Fresh sys.stdin, stdout and stderr over descriptors 0, 1 and 2.

    Lines are flushed as they end, so what was printed survives a SIGKILL.
    """
    sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)
    sys.stdout, sys.stderr = (
        open(
            fd,
            "w",
            encoding="utf-8",
            errors="backslashreplace",
            buffering=1,
            closefd=False,
        )
        for fd in (1, 2)
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr


def fresh_main() -> dict[str, object]:
    """Namespace of a new, empty __main__ module."""
    module = types.ModuleType("__main__")
    module.__builtins__ = builtins
    sys.modules["__main__"] = module
    return module.__dict__


def reseed() -> None:
    """Own random numbers for each call; `random` reseeds itself after a fork."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def run_request(request: dict[str, object]) -> int:
    """Runs what the supervisor asked for and returns the exit status."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = [FILE]
    reseed()
    if request["mode"] == "session":
        return finished(run_session(socket.socket(fileno=_CHANNEL)))
    return finished(run_source(request["code"], fresh_main(), echo=request["echo"]))


def finished(status: int) -> int:
    """Waits for threads, runs exit handlers, flushes; the status that is left."""
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # The code may have closed or replaced anything.
        return status or 120
    return status


def run_session(channel: socket.socket) -> int:
    """Runs cells in one namespace until the channel closes.

    A cell comes as a descriptor with its number; the answer is number and status.
    SIGINT means something during a cell only.
    """
    namespace = fresh_main()
    while True:
        header, fds, _, _ = socket.recv_fds(channel, _CELL.size, 1)
        if not header:
            return 0
        number, _ = _CELL.unpack(header)
        with open(fds[0], "rb") as file:
            cell = marshal.load(file)
        status = 1
        with contextlib.suppress(KeyboardInterrupt):  # It came as the cell ended.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            status = run_source(
                cell["code"], namespace, echo=cell["echo"], name=f"cell {number}"
            )
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        channel.send(_CELL.pack(number, status))


def run_source(
    code: str, namespace: dict[str, object], *, echo: bool, name: str = FILE
) -> int:
    """Runs code in a namespace: 0, or what an interpreter would exit with.

    With echo, a last statement that is an expression is printed as a REPL prints it.
    """
    show_lines(code, name)

    def run() -> None:
        if not echo:
            exec(compile(code, name, "exec"), namespace)
            return
        tree, last = ast.parse(code, name), None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = compile(ast.Expression(tree.body.pop().value), name, "eval")
        exec(compile(tree, name, "exec"), namespace)
        if last is not None:
            sys.displayhook(eval(last, namespace))

    return guarded(run)


def show_lines(code: str, name: str) -> None:
    """Lets tracebacks quote the code."""
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)


def guarded(action: Callable[[], object]) -> int:
    """Status that an interpreter would exit with after `action`; never raises."""
    try:
        action()
    except SystemExit as stop:
        return _exit_status(stop.code)
    except BaseException as error:
        _report(error)
        return 1
    return 0


def _exit_status(code: object) -> int:
    """Exit status of SystemExit(code), as the interpreter computes it."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _report(error: BaseException) -> None:
    """Prints a traceback that starts in the code's own frames."""
    trace = error.__traceback__
    while trace is not None and _is_ours(trace):
        trace = trace.tb_next
    hook = sys.excepthook
    if hook is sys.__excepthook__:
        hook = traceback.print_exception  # It finds the code's lines in linecache.
    try:
        hook(type(error), error.with_traceback(trace), trace)
    except BaseException:  # Out of memory, or stderr is gone: the name must do.
        os.write(2, f"{type(error).__name__}\n".encode())


def _is_ours(trace: types.TracebackType) -> bool:
    """Whether a frame is of this package, or of the parser that it calls."""
    file = trace.tb_frame.f_code.co_filename
    return os.path.dirname(file) == _OURS or file == ast.__file__
