"""First tier: a read-only tree and fresh namespaces for zygotes and their calls.

Runs inside zygotes, so it imports the standard library only. See namespaces(7),
user_namespaces(7), pivot_root(2).
"""

import mmap
import os
import signal
import sys

from agentic_jax.sandbox import kernel, watch

OVERFLOW_UID = 65534  # nobody; what a zygote started by root becomes.
INNER_UID = 1000  # What the code sees as its own uid.
_STAGE = "/sys"  # Covered while the tree is built: no source of ours lies below it.
_DEVICES = ("null", "zero", "full", "random", "urandom")
SYSTEM_PATHS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_ETC_BOUND = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime")
_ETC_WRITTEN = {
    "passwd": f"sandbox:x:{INNER_UID}:{INNER_UID}::/tmp:/bin/sh\n",
    "group": f"sandbox:x:{INNER_UID}:\n",
    "hosts": "127.0.0.1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


class NamespaceTier:
    """Starts calls in namespaces and a file system of their own."""

    keeps_files = True  # A descriptor of /tmp outlives the call.

    def __init__(self):
        self._own_pids = -1
        self._inits: dict[int, int] = {}  # Call -> pid 1 of its namespace.
        self._stacks: dict[int, mmap.mmap] = {}  # Call -> where its pid 1 waits.
        self._free_stacks: list[mmap.mmap] = []

    def enter(self) -> None:
        """Leaves the host: own namespaces, a small read-only root, no privileges.

        Afterwards this process has capabilities in its own user namespace only, and
        its next fork is pid 1 of a pid namespace.

        Raises:
            OSError: the kernel or a container refuses one of the steps.
        """
        inner = kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS
        if os.geteuid() == 0:
            # Root builds first: sources under /root are closed to the uid it takes.
            kernel.unshare(kernel.CLONE_NEWNS)
            build_tree()
            drop_root(OVERFLOW_UID)
            _enter_user_namespace(inner, os.geteuid())
        else:
            _enter_user_namespace(inner, os.geteuid())
            build_tree()
        kernel.unshare(
            kernel.CLONE_NEWPID
            | kernel.CLONE_NEWNET
            | kernel.CLONE_NEWIPC
            | kernel.CLONE_NEWUTS
        )

    def leave(self) -> None:
        """Nothing to do: everything ended with the pid namespace."""

    def enter_server(self) -> None:
        """The zygote proper: pid 1, with a /proc of its own."""
        mount_proc()
        self._own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)

    def start(self, call_id: int) -> list[int]:
        """Forks a child beside a waiting init, in a new pid namespace.

        As second process it gets the usual signals, unlike pid 1; and one SIGKILL to
        pid 1 ends all. Returns [main pid, init pid]; the first is 0 in the child.
        """
        size = mmap.PAGESIZE * 4
        stack = self._free_stacks.pop() if self._free_stacks else mmap.mmap(-1, size)
        init = 0
        try:
            kernel.unshare(kernel.CLONE_NEWPID)
            init = kernel.spawn_pause(kernel.address(stack) + size - 64)
            main = os.fork()
        except OSError:
            if init:
                os.kill(init, signal.SIGKILL)
                os.waitpid(init, 0)
            self._free_stacks.append(stack)
            kernel.setns(self._own_pids, kernel.CLONE_NEWPID)
            raise
        if main == 0:
            return [0]
        kernel.setns(self._own_pids, kernel.CLONE_NEWPID)
        self._inits[call_id], self._stacks[call_id] = init, stack
        return [main, init]

    def isolate(self, call_id: int, limits: dict[str, int]) -> None:
        """Gives a forked child its own mounts, /tmp and user namespace.

        Its mounts belong to the zygote's user namespace, so nothing that it can
        become afterwards may change them.
        """
        kernel.unshare(kernel.CLONE_NEWNS)
        mount_proc()
        flags = kernel.MS_NOSUID | kernel.MS_NODEV
        disk_bytes, max_files = limits["disk_bytes"], limits["max_files"]
        data = f"size={disk_bytes},nr_inodes={max_files},mode=1777"
        covered = [p for p in python_paths() if p.startswith("/tmp/")]
        sources = [os.open(path, os.O_PATH) for path in covered]
        kernel.mount("tmpfs", "/tmp", "tmpfs", flags, data)
        for path, source in zip(covered, sources, strict=True):
            os.makedirs(path)
            at = f"/proc/self/fd/{source}"
            kernel.mount(at, path, None, kernel.MS_BIND | kernel.MS_REC)
            os.close(source)
        os.chdir("/tmp")
        _enter_user_namespace(kernel.CLONE_NEWUSER, INNER_UID)

    def drop_capabilities(self) -> None:
        """All of them."""
        kernel.drop_capabilities()

    def open_directory(self, call_id: int) -> int:
        """Descriptor of the working directory, for the child to send."""
        return os.open("/tmp", os.O_RDONLY | os.O_DIRECTORY)

    def usage(self, mains: dict[int, int]) -> dict[int, watch.Use]:
        """Use per call, given pid -> call of the main processes that still run."""
        inits = {pid: call_id for call_id, pid in self._inits.items()}
        return watch.usage(mains | inits, without=inits)

    def kill(self, call_id: int, main: int) -> None:
        """Ends every process of a call."""
        os.kill(self._inits[call_id], signal.SIGKILL)

    def sweep(self, call_id: int, mains: dict[int, int]) -> None:
        """Ends what outlived the main process of a call."""
        os.kill(self._inits[call_id], signal.SIGKILL)

    def clean(self, call_id: int) -> int:
        """Reaps the init, with which the kernel removes all the rest."""
        os.waitpid(self._inits.pop(call_id), 0)
        self._free_stacks.append(self._stacks.pop(call_id))
        return 0


def drop_root(uid: int) -> None:
    """Becomes an ordinary user for good."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # Else /proc/self belongs to root.


def mount_proc() -> None:
    """A /proc that shows this pid namespace only."""
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel.mount("proc", "/proc", "proc", flags)


def _enter_user_namespace(flags: int, inner_uid: int) -> None:
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(flags)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{inner_uid} {uid} 1")
    _write("/proc/self/gid_map", f"{inner_uid} {gid} 1")


def build_tree() -> None:
    """Replaces the root of this mount namespace by a small read-only one."""
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", _STAGE, "tmpfs", 0, "size=4m,mode=755")
    for path in SYSTEM_PATHS:
        if os.path.islink(path):
            os.symlink(os.readlink(path), _STAGE + path)
        elif os.path.isdir(path):
            _bind(path, "rdonly", "nosuid", "nodev")
    for path in python_paths():
        _bind(path, "rdonly", "nosuid", "nodev")
    os.mkdir(f"{_STAGE}/etc", 0o755)
    for name, text in _ETC_WRITTEN.items():
        _write(f"{_STAGE}/etc/{name}", text)
    for path in filter(os.path.exists, _ETC_BOUND):
        _bind(os.path.realpath(path), "rdonly", "nosuid", "nodev", at=path)
    os.mkdir(f"{_STAGE}/dev", 0o755)
    for name in _DEVICES:
        _bind(f"/dev/{name}", "nosuid", "noexec")
    os.symlink("/proc/self/fd", f"{_STAGE}/dev/fd")
    os.symlink("/tmp", f"{_STAGE}/dev/shm")  # So that the disk limit covers it.
    os.makedirs(f"{_STAGE}/tmp", 0o755, exist_ok=True)  # Python may lie below it.
    os.mkdir(f"{_STAGE}/proc", 0o555)
    kernel.mount("/proc", f"{_STAGE}/proc", None, kernel.MS_BIND | kernel.MS_REC)
    kernel.restrict_mount(_STAGE, "rdonly", "nosuid", recursive=False)
    os.chdir(_STAGE)
    kernel.syscall("pivot_root", b".", b".")
    kernel.unmount(".")
    os.chdir("/")


def python_paths() -> list[str]:
    """Directories that this interpreter needs and that the system paths lack."""
    paths = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    paths |= {os.path.realpath(path) for path in paths}
    outside = sorted(p for p in paths if not f"{p}/".startswith("/usr/"))
    return [p for p in outside if not any(p.startswith(f"{o}/") for o in outside)]


def _bind(source: str, *restrictions: str, at: str | None = None) -> None:
    """Shows a host path in the new tree at the same or another place.

    Directories on the way can be crossed but not listed, not even by their owner.
    """
    target = _STAGE + (at or source)
    made = _STAGE
    for part in os.path.dirname(at or source).strip("/").split("/"):
        made = f"{made}/{part}"
        if not os.path.isdir(made):
            os.mkdir(made, 0o111)
    if os.path.isdir(source):
        os.mkdir(target)
    else:
        _write(target, "")
    kernel.mount(source, target, None, kernel.MS_BIND | kernel.MS_REC)
    kernel.restrict_mount(target, *restrictions)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
