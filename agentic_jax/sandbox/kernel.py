"""Linux calls that the standard library lacks, each raising OSError on failure.

Runs inside zygotes and their children, so it imports the standard library only.
Numbers are of linux/include/uapi; see syscalls(2), clone(2), mount_setattr(2).
"""

import ctypes
import mmap
import os
import platform
import struct

CLONE_VM = 0x00000100
CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
NAMESPACE_FLAGS = 0x7E020080  # Every CLONE_NEW* bit, time and cgroup included.

MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MNT_DETACH = 2
_MOUNT_ATTR = {"rdonly": 1, "nosuid": 2, "nodev": 4, "noexec": 8}
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
_MADV_COLLAPSE = 25

# Calls made by number because the C library has no wrapper for them.
_NUMBERS = {
    "x86_64": {"capset": 126, "pivot_root": 155},
    "aarch64": {"capset": 91, "pivot_root": 41},
}
_SHARED_NUMBERS = {  # One number on every architecture since Linux 5.0.
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
}

MACHINE = platform.machine()
_libc = ctypes.PyDLL(None, use_errno=True)  # PyDLL: these calls are short.
_libc.mmap.restype = ctypes.c_void_p


def _checked(name: str, result: int) -> int:
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def syscall(name: str, *args: int | bytes | None) -> int:
    """Result of a system call made by number; pointers are bytes or buffers."""
    numbers = _SHARED_NUMBERS | _NUMBERS.get(MACHINE, {})
    if name not in numbers:
        raise OSError(f"no number of {name} for {MACHINE}; known: {list(_NUMBERS)}")
    args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    return _checked(name, _libc.syscall(ctypes.c_long(numbers[name]), *args))


def unshare(flags: int) -> None:
    """Moves this process into new namespaces."""
    _checked("unshare", _libc.unshare(flags))


def setns(fd: int, flags: int) -> None:
    """Moves this process (for CLONE_NEWPID, its children) into a namespace."""
    _checked("setns", _libc.setns(fd, flags))


def prctl(option: int, value: int | bytes, third: int | bytes = 0) -> None:
    """Sets one attribute of this process."""
    args = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in (value, third)]
    _checked(f"prctl({option})", _libc.prctl(option, *args, 0, 0))


def mount(
    source: str, target: str, kind: str | None, flags: int, data: str = ""
) -> None:
    """Mounts a file system or binds a path."""
    kind_bytes = kind.encode() if kind else None
    done = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind_bytes,
        ctypes.c_ulong(flags),
        data.encode(),
    )
    _checked(f"mount {source} on {target}", done)


def unmount(target: str) -> None:
    """Detaches a mount and all below it."""
    _checked(f"umount {target}", _libc.umount2(os.fsencode(target), MNT_DETACH))


def restrict_mount(target: str, *names: str, recursive: bool = True) -> None:
    """Adds restrictions ("rdonly", "nosuid", "nodev", "noexec") to a mount."""
    bits = sum(_MOUNT_ATTR[name] for name in names)
    syscall(
        "mount_setattr",
        _AT_FDCWD,
        os.fsencode(target),
        _AT_RECURSIVE if recursive else 0,
        struct.pack("<QQQQ", bits, 0, 0, 0),
        32,
    )


def drop_capabilities() -> None:
    """Empties the effective, permitted and inheritable sets of this thread."""
    header = struct.pack("<Ii", 0x20080522, 0)
    syscall("capset", header, bytes(24))


def keep_capability(number: int) -> None:
    """Makes one capability the whole of all three sets of this thread."""
    header = struct.pack("<Ii", 0x20080522, 0)
    syscall("capset", header, struct.pack("<IIIIII", *[1 << number] * 3, 0, 0, 0))


def spawn_pause(stack_top: int, extra_flags: int = 0) -> int:
    """Pid of a process that shares our memory and does nothing but wait.

    It costs no page tables of its own: it runs libc's pause() on `stack_top` until it
    is killed. As first process of a pid namespace it is the namespace's init.
    """
    pause = ctypes.cast(_libc.pause, ctypes.c_void_p)
    done = _libc.clone(
        pause, ctypes.c_void_p(stack_top), CLONE_VM | 17 | extra_flags, None
    )
    return _checked("clone", done)  # 17 is SIGCHLD: waitpid sees it end.


def address(memory: mmap.mmap) -> int:
    """Where a mapping lies."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def collapse_memory() -> None:
    """Asks for huge pages under our anonymous memory, so that forks copy less.

    Kernels before 6.1 refuse, and small or busy ranges fail: neither matters.
    """
    _libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    with open("/proc/self/maps") as maps:
        lines = maps.read().splitlines()
    for line in lines:
        span, mode, _, _, inode = line.split()[:5]
        start, end = (int(x, 16) for x in span.split("-"))
        if mode == "rw-p" and inode == "0" and end - start >= 2 << 20:
            _libc.madvise(start, end - start, _MADV_COLLAPSE)
