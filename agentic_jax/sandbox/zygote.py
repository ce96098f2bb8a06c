"""The fork server: imports once, then forks one isolated child per call.

It never sees code, input or output: the supervisor sends descriptors and limits over
a SEQPACKET socket, and the zygote answers with exit statuses from the kernel. It runs
`python -I`, imports the standard library only, and ends when its socket closes.
"""

import contextlib
import gc
import importlib
import importlib.util
import marshal
import mmap
import os
import select
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass, field

from agentic_jax.sandbox import child, kernel, namespaces, seccomp, watch

_TICK = 0.05  # Seconds between looks at what running calls use.
_STACK_BYTES = 16384
_MAX_MESSAGE = 1 << 16
_MAX_FD = os.sysconf("SC_OPEN_MAX")
_FAILED_SETUP = 111  # Exit status of a child whose set-up failed; code never ran.


@dataclass
class _Call:
    """A running call; `init` is pid 1 of its namespace."""

    id: int
    init: int
    main: int
    stack: int
    limits: dict[str, int]
    pidfds: list[int] = field(default_factory=list)
    status: int | None = None
    end_time: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    reason: str = ""


class Zygote:
    """Forks, watches and reaps the calls of one supervisor."""

    def __init__(self, control: socket.socket, *, data_bytes: int):
        self._control = control
        self._calls: dict[int, _Call] = {}
        self._poll = select.epoll()
        self._poll.register(control.fileno(), select.EPOLLIN)
        self._exits: dict[int, _Call] = {}  # pidfd -> call
        self._own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._stacks: list[int] = []
        self._stack_maps: list[mmap.mmap] = []
        self._child_filter = seccomp.child_filter()
        self._data_bytes = data_bytes

    def serve(self) -> None:
        """Answers until the supervisor closes the socket."""
        next_tick = time.monotonic() + _TICK
        while True:
            wait = max(0.0, next_tick - time.monotonic()) if self._calls else -1
            for fd, _ in self._poll.poll(wait):
                if fd == self._control.fileno():
                    if not self._receive():
                        return
                else:
                    self._reap(fd)
            if time.monotonic() >= next_tick:
                self._watch()
                next_tick = time.monotonic() + _TICK

    def _receive(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self._control, _MAX_MESSAGE, 5)
        if not data:
            return False
        kind, call_id, *rest = marshal.loads(data)
        call = self._calls.get(call_id)
        if kind == "run":
            try:
                self._spawn(call_id, rest[0], fds)
            except OSError as error:
                self._send("failed", call_id, f"fork: {error}")
            for fd in fds:
                os.close(fd)
        elif call is not None and kind == "kill":
            self._kill(call, "")
        elif call is not None and kind == "interrupt" and call.status is None:
            os.kill(call.main, signal.SIGINT)
        return True

    def _send(self, *message: object) -> None:
        self._control.send(marshal.dumps(message))

    def _spawn(self, call_id: int, limits: dict[str, int], fds: list[int]) -> None:
        """Starts a call: a waiting init, then the child beside it in its namespace."""
        stack = self._stacks.pop() if self._stacks else self._new_stack()
        init = 0
        try:
            kernel.unshare(kernel.CLONE_NEWPID)
            init = kernel.spawn_pause(stack)
            main = os.fork()
            if main == 0:
                self._run_child(call_id, limits, fds)
        except OSError:
            if init:
                os.kill(init, signal.SIGKILL)
                os.waitpid(init, 0)
            self._stacks.append(stack)
            raise
        finally:
            kernel.setns(self._own_pids, kernel.CLONE_NEWPID)
        call = _Call(call_id, init, main, stack, limits)
        self._calls[call_id] = call
        for pid in (main, init):
            self._follow(call, pid)

    def _follow(self, call: _Call, pid: int) -> None:
        pidfd = os.pidfd_open(pid)
        call.pidfds.append(pidfd)
        self._exits[pidfd] = call
        self._poll.register(pidfd, select.EPOLLIN)

    def _new_stack(self) -> int:
        import ctypes

        memory = mmap.mmap(
            -1, _STACK_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        )
        self._stack_maps.append(memory)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        return start + _STACK_BYTES - 64

    def _run_child(self, call_id: int, limits: dict[str, int], fds: list[int]) -> None:
        """In the child: isolates, runs the request and exits; never returns."""
        try:
            request = _prepare(limits, fds, self._data_bytes, self._child_filter)
            directory = []
            if limits["keep_files"]:
                directory = [os.open("/tmp", os.O_RDONLY | os.O_DIRECTORY)]
            message = marshal.dumps(("started", call_id, time.monotonic()))
            socket.send_fds(self._control, [message], directory)
            os.closerange(3 + limits["is_session"], _MAX_FD)
        except BaseException:
            with contextlib.suppress(OSError):
                self._send("failed", call_id, traceback.format_exc())
            os._exit(_FAILED_SETUP)
        status = 1
        try:
            status = child.run_request(request)
        finally:
            os._exit(status)

    def _reap(self, pidfd: int) -> None:
        """One of a call's two processes ended: end the other, then report."""
        call = self._exits.pop(pidfd)
        self._poll.unregister(pidfd)
        call.pidfds.remove(pidfd)
        os.close(pidfd)
        if call.status is None:
            pid, status, usage = os.wait4(call.main, os.WNOHANG)
            if pid:
                call.status, call.end_time = status, time.monotonic()
                call.cpu_seconds = max(
                    call.cpu_seconds, usage.ru_utime + usage.ru_stime
                )
                call.peak_bytes = max(call.peak_bytes, usage.ru_maxrss << 10)
                os.kill(call.init, signal.SIGKILL)
        if call.pidfds:
            return
        os.waitpid(call.init, 0)
        del self._calls[call.id]
        self._stacks.append(call.stack)
        self._send(
            "ended",
            call.id,
            call.end_time,
            os.waitstatus_to_exitcode(call.status),
            call.cpu_seconds,
            call.peak_bytes,
            call.reason,
        )

    def _kill(self, call: _Call, reason: str) -> None:
        call.reason = call.reason or reason
        if call.pidfds:
            os.kill(call.init, signal.SIGKILL)

    def _watch(self) -> None:
        """Stops calls that use too much, and puts busy ones behind the others."""
        if not self._calls:
            return
        roots = {pid: c.id for c in self._calls.values() for pid in (c.main, c.init)}
        for call_id, use in watch.usage(roots).items():
            call = self._calls[call_id]
            call.cpu_seconds = max(call.cpu_seconds, use.cpu_seconds)
            call.peak_bytes = max(call.peak_bytes, use.rss_bytes)
            if use.cpu_seconds > watch.NICE_AFTER:
                watch.lower_priority(use.pids)
            if use.rss_bytes > call.limits["memory_bytes"]:
                held = watch.proportional_bytes(use.pids)
                if held > call.limits["memory_bytes"]:
                    self._kill(call, "memory")
            if use.cpu_seconds > call.limits["cpu_seconds"]:
                self._kill(call, "cpu")


def _prepare(
    limits: dict[str, int], fds: list[int], data_bytes: int, program: bytes
) -> dict[str, object]:
    """Isolates this child for good and returns the request that it is to run."""
    os.setsid()
    namespaces.enter_call(
        disk_bytes=limits["disk_bytes"], max_files=limits["max_files"]
    )
    request_fd, *streams = fds
    with open(request_fd, "rb", closefd=False) as file:
        request = marshal.load(file)
    for target, fd in enumerate(streams):  # Descriptor 3 is a session's channel.
        os.dup2(fd, target)
    child.open_streams()
    child.write_files(request["files"])
    child.apply_limits(limits | {"data_bytes": data_bytes + limits["memory_bytes"]})
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.drop_capabilities()
    seccomp.load(program)
    return request


def preload(modules: list[str], warm_up: str) -> list[str]:
    """Imports what exists of `modules`, runs `warm_up`, returns the names found."""
    found = []
    for name in modules:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
            found.append(name)
    with contextlib.suppress(Exception):  # It names modules that may be missing.
        exec(warm_up, {})
    return found


def main(control_fd: int, warm_up: str, modules: list[str]) -> None:
    """Enters the sandbox, preloads, reports ready, serves."""
    control = socket.socket(fileno=control_fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    namespaces.enter_tree()
    server = os.fork()
    if server:  # The supervisor waits for this process; it follows its server.
        control.close()
        _, status = os.waitpid(server, 0)
        os._exit(1 if status else 0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    namespaces.mount_proc()
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.load(seccomp.zygote_filter())
    found = preload(modules, warm_up)
    sys.path[:] = [p for p in sys.path if os.path.isdir(p) or p.endswith(".zip")]
    gc.collect()
    gc.freeze()
    kernel.collapse_memory()
    zygote = Zygote(control, data_bytes=watch.data_bytes())
    control.send(marshal.dumps(("ready", 0, found, os.getpid())))
    zygote.serve()
