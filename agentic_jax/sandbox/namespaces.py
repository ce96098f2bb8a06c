"""First tier: a read-only tree and fresh namespaces for zygotes and their calls.

Runs inside zygotes, so it imports the standard library only. See namespaces(7),
user_namespaces(7), pivot_root(2).
"""

import os
import sys

from agentic_jax.sandbox import kernel

OVERFLOW_UID = 65534  # nobody; what a zygote started by root becomes.
INNER_UID = 1000  # What the code sees as its own uid.
_STAGE = "/sys"  # Covered while the tree is built: no source of ours lies below it.
_DEVICES = ("null", "zero", "full", "random", "urandom")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_ETC_BOUND = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime")
_ETC_WRITTEN = {
    "passwd": f"sandbox:x:{INNER_UID}:{INNER_UID}::/tmp:/bin/sh\n",
    "group": f"sandbox:x:{INNER_UID}:\n",
    "hosts": "127.0.0.1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


def enter_tree() -> None:
    """Leaves the host: own namespaces, a small read-only root, no privileges on it.

    Afterwards this process has capabilities in its own user namespace only, and its
    next fork is pid 1 of a pid namespace.

    Raises:
        OSError: the kernel or a container refuses one of the steps.
    """
    inner = kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS
    if os.geteuid() == 0:
        # Root builds first: sources under /root are closed to the uid it drops to.
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


def enter_call(*, disk_bytes: int, max_files: int) -> None:
    """Gives a forked child its own mounts, /tmp and user namespace.

    The child is in a fresh pid namespace already. Its mounts belong to the zygote's
    user namespace, so nothing that it can become afterwards may change them.
    """
    uid = os.geteuid()
    kernel.unshare(kernel.CLONE_NEWNS)
    mount_proc()
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    data = f"size={disk_bytes},nr_inodes={max_files},mode=1777"
    kernel.mount("tmpfs", "/tmp", "tmpfs", flags, data)
    os.chdir("/tmp")
    _enter_user_namespace(kernel.CLONE_NEWUSER, INNER_UID)
    if os.geteuid() != INNER_UID:
        raise OSError(f"uid {uid} was not mapped to {INNER_UID}")


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
    for path in _SYSTEM:
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
    os.mkdir(f"{_STAGE}/tmp", 0o755)
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
