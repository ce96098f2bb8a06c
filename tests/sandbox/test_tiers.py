import os
import pathlib
import tempfile
import venv

import pytest

from agentic_jax.sandbox.client import Limits, Sandbox, SandboxError
from tests.sandbox.conftest import family, wait_until


@pytest.fixture(scope="module")
def confined(run):
    """Runs code in the second tier."""
    box = Sandbox(workers=2, tiers=["landlock"], limits=Limits(disk_mb=16))
    try:
        run(box.__aenter__())
    except SandboxError as error:
        pytest.skip(str(error))
    yield lambda code, **k: run(box.execute(code, **{"timeout": 30.0} | k))
    run(box.close())


def test_the_second_tier_runs_code_in_a_directory_of_its_own(confined):
    done = confined(
        "import os, tempfile, numpy\nopen('a', 'w').write('x')\n"
        "tempfile.TemporaryFile().close()\n"
        "print(os.listdir('.'), numpy.arange(3).sum())",
        fetch=["a"],
    )
    assert (done.stdout, done.files) == ("['a'] 3\n", {"a": b"x"}), done.stderr


@pytest.mark.parametrize(
    "action",
    [
        "open('/etc/shadow')",
        f"open({__file__!r})",
        "open('/tmp/leak', 'w')",
        "open('/dev/shm/leak', 'w')",
        "os.listdir('/tmp')",
        "os.kill(TEST, 0)",
        "os.kill(os.getppid(), 9)",
        "open(f'/proc/{TEST}/environ')",
        "__import__('socket').socket()",
        "__import__('resource').setrlimit(10, (1, 1))",
        "os.setuid(0)",
    ],
)
def test_the_second_tier_refuses(confined, action):
    done = confined(
        f"import os\nTEST = {os.getpid()}\ntry: {action}; print('DID')\n"
        "except (OSError, ValueError): print(0)"
    )
    assert (done.stdout, done.status) == ("0\n", "ok"), done.stderr


@pytest.mark.parametrize(
    "code, status",
    [
        ("import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", "timeout"),
        (
            "import os, time\nif os.fork() == 0:\n  os.setsid()\n"
            "  if os.fork() == 0: time.sleep(1000)\n  os._exit(0)",
            "ok",
        ),
        ("x = bytearray(1 << 40)", "error"),
        ("import os\nfor i in range(300): os.mkdir('d'); os.chdir('d')", "ok"),
        (
            "import time\nfor i in range(9):\n"
            "  open(str(i), 'wb').write(b'x' * (8 << 20))\ntime.sleep(9)",
            "error",
        ),
    ],
)
def test_the_second_tier_ends_and_clears_every_call(confined, code, status):
    before = len(family(os.getpid()))
    assert confined(code, timeout=1.5).status == status
    assert wait_until(lambda: len(family(os.getpid())) <= before)
    assert confined("print(1)").stdout == "1\n"


def test_directories_of_the_second_tier_go_with_it(run):
    async def use():
        async with Sandbox(workers=1, tiers=["landlock"]) as box:
            done = await box.execute("import os; print(os.getcwd())", timeout=30.0)
            return pathlib.Path(done.stdout.strip()).parent

    try:
        base = run(use())
    except SandboxError as error:
        pytest.skip(str(error))
    assert base.name.startswith("sandbox-")
    assert not base.exists()


def test_without_a_tier_it_refuses_unless_told(run):
    async def use(**options):
        async with Sandbox(workers=1, **options) as box:
            done = await box.execute("print(1)", timeout=30.0)
            return done.stdout, box.health()["tier"]

    with pytest.raises(SandboxError, match="no way to isolate.*allow_unsafe"):
        run(use(tiers=[]))
    assert run(use(tiers=[], allow_unsafe=True)) == ("1\n", "unsafe")


def test_the_first_tier_works_with_a_python_below_tmp(run, first_tier):
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        venv.create(directory, symlinks=True)
        python = os.path.join(directory, "bin", "python")

        async def listed():
            box = Sandbox(workers=1, python=python, tiers=("namespaces",))
            async with box as sandbox:
                code = "import sys, os; print(sys.prefix, os.listdir(sys.prefix))"
                read = await sandbox.execute(code, timeout=30.0)
                code = f"open({directory!r} + '/x', 'w')"
                return read, await sandbox.execute(code, timeout=30.0)

        read, written = run(listed())
        assert read.stdout.startswith(f"{directory} ['"), read
        assert "Read-only file system" in written.stderr
