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
import os
import select
import signal
import socket
import time
import traceback
from dataclasses import dataclass, field

from agentic_jax.sandbox import (
    child,
    kernel,
    landlock,
    namespaces,
    seccomp,
    trial,
    watch,
)

Tier = namespaces.NamespaceTier | landlock.LandlockTier
_TICK = 0.05  # Seconds between looks at what running calls use.
_MAX_MESSAGE = 1 << 16
_MAX_FD = os.sysconf("SC_OPEN_MAX")


@dataclass
class _Call:
    """A running call: its main process, and what else must end before it has ended."""

    id: int
    main: int
    limits: dict[str, int]
    pidfds: list[int] = field(default_factory=list)
    status: int | None = None
    end_time: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    reason: str = ""


class Zygote:
    """Forks, watches and reaps the calls of one supervisor.

    Args:
        control: socket to the supervisor.
        tier: how calls are isolated; it has entered already.
        data_bytes: private memory that every fork starts with.
    """

    def __init__(self, control: socket.socket, *, tier: Tier, data_bytes: int):
        self._control, self._tier, self._data_bytes = control, tier, data_bytes
        self._calls: dict[int, _Call] = {}
        self._exits: dict[int, _Call] = {}  # pidfd -> call
        self._kept: set[int] = set()
        self._removers: dict[int, int] = {}  # pidfd -> pid
        self._poll = select.epoll()
        self._poll.register(control.fileno(), select.EPOLLIN)
        self._child_filter = seccomp.child_filter()

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
        elif kind == "release" and call_id in self._kept:
            self._kept.remove(call_id)
            self._clean(call_id)
        elif call is not None and kind == "kill":
            self._kill(call, "")
        elif call is not None and kind == "interrupt" and call.status is None:
            os.kill(call.main, signal.SIGINT)
        return True

    def _send(self, *message: object) -> None:
        self._control.send(marshal.dumps(message))

    def _spawn(self, call_id: int, limits: dict[str, int], fds: list[int]) -> None:
        main, *others = self._tier.start(call_id)
        if main == 0:
            self._run_child(call_id, limits, fds)
        call = self._calls[call_id] = _Call(call_id, main, limits)
        for pid in (main, *others):
            call.pidfds.append(self._follow(pid))
            self._exits[call.pidfds[-1]] = call

    def _follow(self, pid: int) -> int:
        pidfd = os.pidfd_open(pid)
        self._poll.register(pidfd, select.EPOLLIN)
        return pidfd

    def _clean(self, call_id: int) -> None:
        remover = self._tier.clean(call_id)
        if remover:
            self._removers[self._follow(remover)] = remover

    def _run_child(self, call_id: int, limits: dict[str, int], fds: list[int]) -> None:
        """In the child: isolates, runs the request and exits; never returns."""
        try:
            request = self._prepare(call_id, limits, fds)
            directory = []
            if limits["keep_files"]:
                directory = [self._tier.open_directory(call_id)]
            message = marshal.dumps(("started", call_id, time.monotonic()))
            socket.send_fds(self._control, [message], directory)
            os.closerange(3 + limits["is_session"], _MAX_FD)
        except BaseException:
            with contextlib.suppress(OSError):
                self._send("failed", call_id, traceback.format_exc())
            os._exit(1)
        status = 1
        try:
            run = trial.run_trials if request["mode"] == "trials" else child.run_request
            status = run(request)
        finally:
            os._exit(status)

    def _prepare(
        self, call_id: int, limits: dict[str, int], fds: list[int]
    ) -> dict[str, object]:
        """Isolates this child for good and returns the request that it is to run."""
        os.setsid()
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        self._tier.isolate(call_id, limits)
        request_fd, *streams = fds
        with open(request_fd, "rb", closefd=False) as file:
            request = marshal.load(file)
        for target, fd in enumerate(streams):  # Descriptor 3 is a session's channel.
            os.dup2(fd, target)
        child.open_streams()
        child.write_files(request["files"])
        limits["data_bytes"] = self._data_bytes + limits["memory_bytes"]
        child.apply_limits(limits)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        self._tier.drop_capabilities()
        seccomp.load(self._child_filter)
        return request

    def _reap(self, pidfd: int) -> None:
        """A process that a call waits for has ended; report when none is left."""
        self._poll.unregister(pidfd)
        os.close(pidfd)
        if pidfd in self._removers:
            with contextlib.suppress(ChildProcessError):  # Taken for a stray.
                os.waitpid(self._removers.pop(pidfd), 0)
            return
        call = self._exits.pop(pidfd)
        call.pidfds.remove(pidfd)
        if call.status is None:
            pid, status, usage = os.wait4(call.main, os.WNOHANG)
            if pid:
                call.status, call.end_time = status, time.monotonic()
                seconds = usage.ru_utime + usage.ru_stime
                call.cpu_seconds = max(call.cpu_seconds, seconds)
                call.peak_bytes = max(call.peak_bytes, usage.ru_maxrss << 10)
                self._tier.sweep(call.id, self._mains())
        if not call.pidfds:
            self._finish(call)

    def _finish(self, call: _Call) -> None:
        del self._calls[call.id]
        if call.limits["keep_files"] and not self._tier.keeps_files:
            self._kept.add(call.id)
        else:
            self._clean(call.id)
        exit_code = os.waitstatus_to_exitcode(call.status)
        used = (call.cpu_seconds, call.peak_bytes, call.reason)
        self._send("ended", call.id, call.end_time, exit_code, *used)

    def _mains(self) -> dict[int, int]:
        return {c.main: c.id for c in self._calls.values() if c.status is None}

    def _kill(self, call: _Call, reason: str) -> None:
        call.reason = call.reason or reason
        if call.status is None:
            self._tier.kill(call.id, call.main)

    def _watch(self) -> None:
        """Stops calls that use too much, and puts busy ones behind the others."""
        if not self._calls:
            return
        for call_id, use in self._tier.usage(self._mains()).items():
            call = self._calls.get(call_id)
            if call is None:
                continue
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
            if (
                use.disk_bytes > call.limits["disk_bytes"]
                or use.files > call.limits["max_files"]
            ):
                self._kill(call, "disk")


def preload(modules: list[str], warm_up: str) -> None:
    """Imports what exists of `modules` and runs `warm_up`."""
    for name in modules:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
    with contextlib.suppress(Exception):  # It names modules that may be missing.
        exec(warm_up, {})


def main(control_fd: int, tier_name: str, warm_up: str, modules: list[str]) -> None:
    """Enters the sandbox, preloads, reports ready, serves."""
    control = socket.socket(fileno=control_fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tier: Tier = (
        namespaces.NamespaceTier()
        if tier_name == "namespaces"
        else landlock.LandlockTier(confine=tier_name == "landlock")
    )
    try:
        tier.enter()
    except OSError as error:
        control.send(marshal.dumps(("refused", 0, str(error))))
        return
    server = os.fork()
    if server:  # The supervisor waits for this process; it follows its server.
        control.close()
        _, status = os.waitpid(server, 0)
        tier.leave()
        os._exit(1 if status else 0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        tier.enter_server()
    except OSError as error:
        control.send(marshal.dumps(("refused", 0, str(error))))
        return
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.load(seccomp.zygote_filter())
    preload(modules, warm_up)
    gc.collect()
    gc.freeze()
    kernel.collapse_memory()
    # A waiting init shares this process's memory: /proc/1 must not be the code's own.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    zygote = Zygote(control, tier=tier, data_bytes=watch.data_bytes())
    control.send(marshal.dumps(("ready", 0)))
    with contextlib.suppress(ConnectionError):  # The supervisor is gone.
        zygote.serve()
