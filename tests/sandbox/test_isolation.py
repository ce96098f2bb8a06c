"""What code cannot do, in the first tier; the second has its own file."""

import json
import os
import pathlib

import pytest

from tests import sandbox_attacks

pytestmark = pytest.mark.usefixtures("first_tier")
HERE = pathlib.Path(__file__).resolve()
OWN_ATTACKS = HERE.parent / "attacks.json"
SHARED_ATTACKS = HERE.parents[3] / "shared/cases/sandbox_attacks.json"
SYSCALLS = (
    "import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    "def call(*a):\n  r = libc.syscall(*a)\n"
    "  return errno.errorcode[ctypes.get_errno()] if r < 0 else 'DID'\n"
)
# Numbers of x86-64.
DENIED = {
    "ptrace": "call(101, 16, 1, 0, 0)",
    "process_vm_readv": "call(310, 1, 0, 0, 0, 0, 0)",
    "pidfd_open": "call(434, 1, 0)",
    "mount": "call(165, b'tmpfs', b'/tmp', b'tmpfs', 0, 0)",
    "umount": "call(166, b'/proc', 2)",
    "unshare": "call(272, 0x10000000)",
    "clone into a user namespace": "call(56, 0x10000011, 0, 0, 0, 0)",
    "setns": "call(308, 0, 0)",
    "fsopen": "call(430, b'tmpfs', 0)",
    "chroot": "call(161, b'/tmp')",
    "bpf": "call(321, 0, 0, 0)",
    "io_uring": "call(425, 1, 0)",
    "keyctl": "call(250, 0, 0)",
    "memfd_create": "call(319, b'x', 0)",
    "shmget": "call(29, 0, 4096, 0o1600)",
    "a socket": "call(41, 2, 1, 0)",
    "undumpable": "call(157, 4, 0)",
    "another tag": "call(160, 10, b'\\0' * 16)",
    "open_by_handle_at": "call(304, -100, 0, 0)",
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86-64")
@pytest.mark.parametrize("name", DENIED)
def test_system_call_is_refused(execute, name):
    assert execute(f"{SYSCALLS}print({DENIED[name]})").stdout == "EPERM\n"


def test_clone3_and_unknown_calls_do_not_exist(execute):
    done = execute(f"{SYSCALLS}print(call(435, 0, 0), call(1000, 0))")
    assert done.stdout == "ENOSYS ENOSYS\n"


@pytest.mark.parametrize(
    "action",
    [
        "open('/etc/shadow')",
        f"open({__file__!r})",
        "open('/proc/1/environ')",
        "open('/proc/1/mem', 'rb')",
        "open('/proc/1/oom_score_adj', 'w')",
        "open('/proc/1/root/etc/passwd')",
        "open('/usr/x', 'w')",
        "open('/x', 'w')",
        "open('/proc/sys/kernel/core_pattern', 'w')",
        "os.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), b'-1000')",
        "os.listdir('/root')",
        "os.listdir('/home')",
        "os.setuid(0)",
        "os.kill(1, 9) or os.kill(1, 0) or open('/proc/1/stat') and 1/0",
        "os.mknod('/tmp/d', 0o20666, 259)",
        "os.nice(-5)",
        "__import__('resource').setrlimit(7, (9999, 9999))",
        "__import__('socket').create_connection(('127.0.0.1', 80))",
        "__import__('socket').getaddrinfo('example.com', 80)",
    ],
)
def test_action_is_refused(execute, action):
    refused = "(OSError, ValueError, ZeroDivisionError)"
    done = execute(
        f"import os\ntry: {action}; print('DID')\nexcept {refused}: print(0)"
    )
    assert (done.stdout, done.status) == ("0\n", "ok"), done.stderr


def test_only_its_own_processes_are_seen(execute):
    done = execute("import os; print([p for p in os.listdir('/proc') if p.isdigit()])")
    assert done.stdout == "['1', '2']\n"


def test_every_mount_but_its_own_is_read_only(execute):
    done = execute(
        "for line in open('/proc/self/mountinfo'):\n"
        "  place, options = line.split()[4:6]\n"
        "  if 'ro' not in options.split(','): print(place)"
    )
    writable = {line for line in done.stdout.split() if not line.startswith("/dev/")}
    assert writable == {"/proc", "/tmp"}


def test_no_privilege_is_left(execute):
    done = execute(
        "for line in open('/proc/self/status'):\n"
        "  if line.startswith(('Cap', 'NoNew', 'Seccomp:')): print(line.split()[1])"
    )
    inherited, permitted, effective, _, ambient, no_new, seccomp = done.stdout.split()
    assert {inherited, permitted, effective, ambient} == {"0" * 16}
    assert (no_new, seccomp) == ("1", "2")


def test_the_environment_of_the_server_is_not_seen(execute):
    code = "import os; print(sorted(k for k in os.environ if 'THREADS' not in k))"
    names = "['HOME', 'LANG', 'PATH', 'PYTHONHASHSEED', 'TZ']"
    assert execute(code).stdout.replace(", 'LC_CTYPE'", "") == names + "\n"


def test_usual_tools_work(execute):
    done = execute(
        "import subprocess, tempfile, asyncio\nfrom multiprocessing import Pool\n"
        "def square(x): return x * x\n"
        "with Pool(2) as pool: print(pool.map(square, [1, 2, 3]))\n"
        "print(subprocess.run(['echo', 'hi'], capture_output=True, text=True).stdout)\n"
        "print(tempfile.NamedTemporaryFile().name[:5])\n"
        "print(asyncio.run(asyncio.sleep(0, 5)))",
        timeout=9,
    )
    assert done.stdout == "[1, 4, 9]\nhi\n\n/tmp/\n5\n", done.stderr


def test_a_tool_argument_is_text_and_nothing_more(execute, tmp_path):
    target = tmp_path / "pwn"
    code = f'__import__("os").system("touch {target}")'
    execute(code)
    assert not target.exists()


@pytest.mark.parametrize("file", [OWN_ATTACKS, SHARED_ATTACKS], ids=["own", "shared"])
def test_attacks_hold(serving, capsys, file):
    if not file.exists():
        pytest.skip("no shared cases beside the repository")
    failed = sandbox_attacks.main([str(file), "--url", serving("--workers=2")])
    assert failed == 0, capsys.readouterr().out


def test_the_attack_checker_sees_what_does_not_hold():
    want = {"status": ["Finished"], "stdout_equals": "1\n", "within_s": 1}
    result = {"status": "Error", "stdout": "2\n", "stderr": "", "return_code": 1}
    assert len(sandbox_attacks.problems_of(want, result, 2.0, 1.0)) == 3
    good = json.loads('{"status": "Finished", "stdout": "1\\n", "stderr": ""}')
    assert sandbox_attacks.problems_of(want, good, 0.5, 1.0) == []
