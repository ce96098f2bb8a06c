"""Second tier: Landlock, seccomp and a subreaper, where namespaces are refused.

Runs inside zygotes, so it imports the standard library only. See landlock(7).
Strays are known by their uid where root gave the call one; else by RLIMIT_LOCKS, which
does nothing else, is inherited and cannot be changed past the seccomp filter.
"""

import contextlib
import itertools
import os
import resource
import secrets
import signal
import struct
import tempfile

from agentic_jax.sandbox import kernel, watch
from agentic_jax.sandbox.namespaces import OVERFLOW_UID, SYSTEM_PATHS, python_paths

_EXECUTE, _WRITE, _READ, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_HANDLED = {1: (1 << 13) - 1, 2: _REFER, 3: _TRUNCATE, 5: _IOCTL}  # Added by version.
_NET_TCP, _SCOPES = 3, 3  # Bind and connect; abstract sockets and signals.
_RULE_PATH_BENEATH = 1
_SCOPED_SINCE = 6
_READABLE = (
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/nsswitch.conf",
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_RLIMIT_LOCKS = 10
_FIRST_UID = 40_000  # A zygote started by root gives each call a uid of its own.
_NUM_UIDS = 25_000  # Up to 65,535, as user namespaces of containers map no more.
_KEEP_CAPS, _CAP_AMBIENT, _AMBIENT_RAISE, _DAC_READ_SEARCH = 8, 47, 2, 2
_FEW_FILES = 16
_MAX_SWEEPS = 2000


class LandlockTier:
    """Starts calls in a working directory that is all they can write to.

    Args:
        confine: False leaves Landlock out: no isolation, and only for operators who
            asked for it.
    """

    def __init__(self, *, confine: bool):
        self._confine = confine
        self._version = 0
        self._base = ""
        self._paths: list[tuple[int, int]] = []  # Descriptor, rights.
        self._is_root = os.geteuid() == 0
        self._searches = False  # The uid that calls get cannot reach the interpreter.

    def enter(self) -> None:
        """Checks that the kernel can do it, and opens what calls may read.

        Raises:
            OSError: Landlock is missing, or too old to keep signals in.
        """
        if self._confine:
            self._version = kernel.syscall("landlock_create_ruleset", None, 0, 1)
            if self._version < _SCOPED_SINCE and not self._is_root:
                raise OSError(
                    f"Landlock version {self._version} cannot scope signals, and only"
                    " root can give each call its own uid"
                )
            self._open_paths()
        if self._is_root:
            self._searches = not _reachable(OVERFLOW_UID)
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        self._base = tempfile.mkdtemp(prefix="sandbox-")
        os.chmod(self._base, 0o711)

    def leave(self) -> None:
        """Ends whatever is left and removes the directory of all calls."""
        for _ in range(_MAX_SWEEPS):
            left = watch.usage({os.getpid(): 0})[0].pids
            left.remove(os.getpid())
            if not left:
                break
            _end(left)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
        remove_tree(self._base)

    keeps_files = False  # A finished call's directory is there until `clean`.

    def enter_server(self) -> None:
        """The zygote proper becomes the subreaper of its calls."""
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)

    def start(self, call_id: int) -> list[int]:
        """Forks; [main pid], whose first entry is 0 in the child."""
        directory = self._directory(call_id)
        os.mkdir(directory, 0o700)
        if self._is_root:
            os.chown(directory, _uid(call_id), _uid(call_id))
        return [os.fork()]

    def isolate(self, call_id: int, limits: dict[str, int]) -> None:
        """Confines this forked child to its directory."""
        directory = self._directory(call_id)
        os.chdir(directory)
        os.environ["HOME"] = os.environ["TMPDIR"] = directory
        tempfile.tempdir = None
        resource.setrlimit(_RLIMIT_LOCKS, (_tag(call_id), _tag(call_id)))
        if self._is_root:
            self._drop_root(_uid(call_id))
        else:
            # The kernel counts all that this user runs.
            limits["max_processes"] += watch.user_threads(os.geteuid())
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        if self._confine:
            self._restrict(directory)

    def drop_capabilities(self) -> None:
        """All, save the one that finds an interpreter under a closed directory."""
        if not self._searches:
            kernel.drop_capabilities()

    def open_directory(self, call_id: int) -> int:
        """Descriptor of the working directory."""
        return os.open(self._directory(call_id), os.O_RDONLY | os.O_DIRECTORY)

    def usage(self, mains: dict[int, int]) -> dict[int, watch.Use]:
        """Use per call, given pid -> call of the main processes that still run."""
        calls = {_tag(call_id): call_id for call_id in mains.values()}
        strays = {p: calls[t] for p, t in self._strays(mains)[0].items() if t in calls}
        uses = watch.usage(mains | strays)
        for call_id, use in uses.items():
            use.disk_bytes, use.files = _used(self._directory(call_id))
        return uses

    def kill(self, call_id: int, main: int) -> None:
        """Ends a call: its main process now, the others when that is reaped."""
        self._end(call_id, [main])

    def sweep(self, call_id: int, mains: dict[int, int]) -> None:
        """Ends what outlived the main process of a call."""
        for _ in range(_MAX_SWEEPS):
            strays, any_reaped = self._strays(mains)
            use = watch.usage(strays).get(_tag(call_id))
            if use is not None:
                self._end(call_id, use.pids)
            elif not any_reaped:  # Whose children may have become ours just now.
                return
        raise OSError(f"processes of call {call_id} cannot be ended")

    def clean(self, call_id: int) -> int:
        """Removes the working directory; 0, or the pid of a fork that does it."""
        directory = self._directory(call_id)
        with os.scandir(directory) as entries:
            names = [e.path for e in itertools.islice(entries, _FEW_FILES + 1)]
        if len(names) <= _FEW_FILES and not any(map(_is_directory, names)):
            remove_tree(directory)
            return 0
        remover = os.fork()
        if remover == 0:
            try:
                remove_tree(directory)
            finally:
                os._exit(0)
        return remover

    def _strays(self, mains: dict[int, int]) -> tuple[dict[int, int], bool]:
        """Orphans of calls that became our children, and whether one was reaped."""
        strays, any_reaped = {}, False
        for pid in watch.children(os.getpid()):
            if pid not in mains:
                if os.waitpid(pid, os.WNOHANG)[0]:
                    any_reaped = True
                    continue
                with contextlib.suppress(OSError):  # It ended meanwhile.
                    if self._is_root:
                        strays[pid] = watch.user(pid) - _FIRST_UID
                    else:
                        strays[pid], _ = resource.prlimit(pid, _RLIMIT_LOCKS)
        return strays, any_reaped

    def _end(self, call_id: int, pids: list[int]) -> None:
        """Kills processes so that none can fork meanwhile."""
        if not self._is_root:
            _end(pids)
        elif (helper := os.fork()) == 0:  # One signal to all that this user runs.
            try:
                os.setresuid(*[_uid(call_id)] * 3)
                os.kill(-1, signal.SIGKILL)
            finally:
                os._exit(0)
        else:
            os.waitpid(helper, 0)

    def _directory(self, call_id: int) -> str:
        return f"{self._base}/{call_id}"

    def _drop_root(self, uid: int) -> None:
        if self._searches:
            kernel.prctl(_KEEP_CAPS, 1)
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        if self._searches:
            kernel.keep_capability(_DAC_READ_SEARCH)
            kernel.prctl(_CAP_AMBIENT, _AMBIENT_RAISE, _DAC_READ_SEARCH)

    def _open_paths(self) -> None:
        readable = (*SYSTEM_PATHS, *python_paths(), *_READABLE)
        rights = _EXECUTE | _READ | _READ_DIR
        for path in filter(os.path.exists, readable):
            self._paths.append((os.open(path, os.O_PATH | os.O_CLOEXEC), rights))
        for path in filter(os.path.exists, _DEVICES):
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            self._paths.append((fd, _READ | _WRITE))

    def _restrict(self, directory: str) -> None:
        """Landlock on this process, for good."""
        handled = sum(bits for v, bits in _HANDLED.items() if v <= self._version)
        net = _NET_TCP if self._version >= 4 else 0
        scopes = _SCOPES if self._version >= _SCOPED_SINCE else 0
        attributes = struct.pack("<QQQ", handled, net, scopes)
        size = 8 if self._version < 4 else 16 if self._version < 6 else 24
        ruleset = kernel.syscall("landlock_create_ruleset", attributes, size, 0)
        own = (
            (os.open(directory, os.O_PATH), handled),
            (os.open("/proc/self/", os.O_PATH), _READ | _READ_DIR | _WRITE),
        )
        for fd, rights in (*self._paths, *own):
            is_directory = os.path.isdir(f"/proc/self/fd/{fd}")
            rights &= handled if is_directory else _EXECUTE | _READ | _WRITE
            rule = struct.pack("<Qi", rights, fd)
            kernel.syscall("landlock_add_rule", ruleset, _RULE_PATH_BENEATH, rule, 0)
        kernel.syscall("landlock_restrict_self", ruleset, 0)


def remove_tree(top: str) -> None:
    """Removes a directory of any depth, following no link.

    Directories are moved up beside each other, so that no path grows.
    """
    prefix = f"{top}/{secrets.token_hex(8)}-"  # No name that the code could have made.
    pending, serial = [top], itertools.count()
    while pending:
        path = pending.pop()
        with os.scandir(path) as entries:
            for entry in list(entries):
                if entry.is_dir(follow_symlinks=False):
                    os.chmod(entry.path, 0o700)
                    pending.append(f"{prefix}{next(serial)}")
                    os.rename(entry.path, pending[-1])
                else:
                    os.unlink(entry.path)
        if path != top:
            os.rmdir(path)
    os.rmdir(top)


def _used(directory: str) -> tuple[int, int]:
    """Bytes and entries below a directory, as far as it can be seen."""
    total, files, pending = 0, 0, [directory]
    while pending:
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                files += 1
                total += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    return total, files


def _is_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _uid(call_id: int) -> int:
    return _FIRST_UID + _tag(call_id)


def _tag(call_id: int) -> int:
    return call_id % _NUM_UIDS


def _end(pids: list[int]) -> None:
    """Stops processes from forking, then kills them."""
    for pid in pids:
        with contextlib.suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_NPROC, (0, 0))
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _reachable(uid: int) -> bool:
    """Whether another user could read this interpreter's files."""
    for path in python_paths():
        while path != "/":
            about = os.stat(path)
            if not about.st_mode & 0o005 == 0o005 and about.st_uid != uid:
                return False
            path = os.path.dirname(path)
    return True
