"""System-call filters, built by hand as classic BPF so that no library is needed.

Two filters stack. The zygote loads the large one, once: it denies what neither the
zygote nor a child's set-up needs. Each child adds a small one that closes the calls
which its own set-up used (mounts, namespaces). See seccomp(2), linux/audit.h.
"""

import ctypes
import errno
import struct

from agentic_jax.sandbox import kernel

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH, _ARG0 = 0, 4, 16
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
_LAST_KNOWN = 470  # Newer calls answer ENOSYS: nobody has looked at them yet.
_RLIMIT_LOCKS = 10  # Carries the call's tag in the second tier.

# name: (x86_64, aarch64); None where the architecture lacks the call.
_ZYGOTE_DENIED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "socket": (41, 198),  # socketpair stays: asyncio needs it, and it leads nowhere.
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "syslog": (103, 116),
    "acct": (163, 89),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "personality": (135, 92),
    "vhangup": (153, 58),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
}
_CHILD_DENIED = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "pidfd_open": (434, 434),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
}
_CLONE, _CLONE3 = (56, 220), (435, 435)
_PRCTL, _PRLIMIT, _SETRLIMIT = (157, 167), (302, 261), (160, 164)


def zygote_filter() -> bytes:
    """BPF program of the large filter."""
    column = _column()
    program = [
        _op(_LOAD, _ARCH),
        _op(_JEQ, _AUDIT_ARCH[kernel.MACHINE], 1, 0),
        _op(_RET, _KILL),
        _op(_LOAD, _NR),
        _op(_JGE, _X32_BIT, 0, 1),
        _op(_RET, _KILL),
        _op(_JGE, _LAST_KNOWN, 0, 1),
        _op(_RET, _ERRNO | errno.ENOSYS),
    ]
    return b"".join(program) + _deny(_ZYGOTE_DENIED, column)


def child_filter() -> bytes:
    """BPF program of the small filter."""
    column = _column()
    flags = _op(_LOAD, _ARG0)
    program = [
        _op(_LOAD, _NR),
        *_if(
            _CLONE[column],
            flags,
            _op(_JSET, kernel.NAMESPACE_FLAGS, 0, 1),
            _op(_RET, _ERRNO | errno.EPERM),
            _op(_RET, _ALLOW),
        ),
        # A process must hide neither its memory nor its tag from the watchdog.
        *_if(_PRCTL[column], *_deny_arg(0, kernel.PR_SET_DUMPABLE)),
        *_if(_PRLIMIT[column], *_deny_arg(1, _RLIMIT_LOCKS)),
        *_if(_SETRLIMIT[column], *_deny_arg(0, _RLIMIT_LOCKS)),
        # Its flags lie in memory, where a filter cannot look; libc falls back.
        *_if(_CLONE3[column], _op(_RET, _ERRNO | errno.ENOSYS)),
    ]
    return b"".join(program) + _deny(_CHILD_DENIED, column)


def load(program: bytes) -> None:
    """Applies a filter to this process and all that it starts, for good.

    NO_NEW_PRIVS must be set. Raises OSError where the kernel refuses.
    """
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
    kernel.prctl(kernel.PR_SET_SECCOMP, 2, header)


def _column() -> int:
    if kernel.MACHINE not in _AUDIT_ARCH:
        raise OSError(f"no call table for {kernel.MACHINE}: {list(_AUDIT_ARCH)} only")
    return list(_AUDIT_ARCH).index(kernel.MACHINE)


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _if(number: int, *body: bytes) -> list[bytes]:
    """Runs body, which must end in a return, when the call is `number`."""
    return [_op(_JEQ, number, 0, len(body)), *body]


def _deny_arg(index: int, value: int) -> list[bytes]:
    """Body that refuses the call when the low half of an argument is `value`."""
    return [
        _op(_LOAD, _ARG0 + 8 * index),
        _op(_JEQ, value, 0, 1),
        _op(_RET, _ERRNO | errno.EPERM),
        _op(_RET, _ALLOW),
    ]


def _deny(table: dict[str, tuple[int | None, int | None]], column: int) -> bytes:
    """Refuses every call of the table with EPERM and allows the rest."""
    numbers = sorted(row[column] for row in table.values() if row[column] is not None)
    jumps = [_op(_JEQ, number, len(numbers) - i, 0) for i, number in enumerate(numbers)]
    return b"".join([*jumps, _op(_RET, _ALLOW), _op(_RET, _ERRNO | errno.EPERM)])
