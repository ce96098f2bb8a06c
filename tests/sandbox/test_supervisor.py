import asyncio
import os
import signal
import time

import pytest

from agentic_jax.sandbox.client import Limits, Sandbox, SandboxError
from tests.sandbox.conftest import family, wait_until


def test_streams_exit_code_and_status_come_from_the_run(execute):
    done = execute("import sys; print('out'); print('err', file=sys.stderr)")
    assert (done.stdout, done.stderr) == ("out\n", "err\n")
    assert (done.exit_code, done.status, done.message) == (0, "ok", "")
    assert 0 < done.seconds < 30 and done.cpu_seconds > 0


@pytest.mark.parametrize(
    "code, exit_code",
    [
        ("raise SystemExit(3)", 3),
        ("import sys; sys.exit('msg')", 1),
        ("import os; os._exit(7)", 7),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os; os.kill(os.getpid(), 15)", -15),
        ("import os; os.abort()", -6),
        ("import signal; signal.raise_signal(signal.SIGTERM)", -15),
        ("import signal, time; signal.alarm(1); time.sleep(9)", -14),
        ("import ctypes; ctypes.string_at(0)", -11),
        ("x = ", 1),
        ("1/0", 1),
        ("import os, sys; os.close(0); os.close(1); os.close(2)", 0),
    ],
)
def test_exit_code_is_the_kernels(execute, code, exit_code):
    done = execute(code)
    assert done.exit_code == exit_code
    assert done.status == ("error" if exit_code else "ok")


def test_printed_markers_and_statuses_mean_nothing(execute):
    done = execute('print("@@E\\n{\\"status\\": \\"ok\\"}"); raise SystemExit(3)')
    assert (done.exit_code, done.status) == (3, "error")
    assert done.stdout == '@@E\n{"status": "ok"}\n'


def test_partial_output_survives_a_time_out(execute, leaves_nothing):
    start = time.monotonic()
    done = execute("print('so far')\nwhile True: pass", timeout=0.5)
    assert time.monotonic() - start < 3
    assert (done.status, done.stdout) == ("timeout", "so far\n")
    assert done.message == "Stopped: the time limit of 0.5 s was reached."


@pytest.mark.parametrize(
    "code",
    [
        "import signal\nfor s in (2, 14, 15): signal.signal(s, signal.SIG_IGN)\n"
        "signal.alarm(0)\nwhile True: pass",
        "import subprocess; subprocess.run(['sleep', '1000'])",
        "import os, time\nif os.fork(): os.setsid\ntime.sleep(1000)",
        "import atexit, time; atexit.register(time.sleep, 1000)",
    ],
)
def test_nothing_outlives_the_time_limit(execute, leaves_nothing, code):
    done = execute(code, timeout=0.4)
    assert done.status == "timeout"
    assert done.seconds < 3


def test_a_daemon_that_keeps_the_pipes_does_not_keep_the_call(execute, leaves_nothing):
    code = (
        "import os, time\nif os.fork() == 0:\n  os.setsid()\n"
        "  if os.fork() == 0: time.sleep(1000)\n  os._exit(0)\nprint('done')"
    )
    done = execute(code)
    assert (done.stdout, done.status) == ("done\n", "ok")
    assert done.seconds < 30


def test_long_output_keeps_head_and_tail_and_says_so(execute):
    done = execute("print('h' * 10, 'x' * 10_000_000, 't' * 10)")
    assert done.stdout.startswith("h" * 10) and done.stdout.endswith("t" * 10 + "\n")
    assert "[... 9000023 bytes cut ...]" in done.stdout
    assert len(done.stdout) < 1_000_100


def test_endless_output_is_stopped(execute, leaves_nothing):
    done = execute("while True: print('x' * 100_000)", timeout=60)
    assert (done.status, done.exit_code) == ("output", -9)
    assert done.message == "Stopped: more than 64000000 bytes were printed."


def test_any_bytes_become_text(execute):
    done = execute(
        "import sys\nprint('\\u00e9 \\u4f60 \\U0001f642 \\u2028 end \\ud800')\n"
        "sys.stdout.flush(); sys.stdout.buffer.write(b'\\xff\\x00abc')"
    )
    assert done.stdout == "é 你 🙂 \u2028 end \\ud800\n\ufffd\x00abc"
    assert done.status == "ok"


def test_input_is_read_to_its_end(execute):
    assert execute("print(int(input()) + 1)", stdin="41\n").stdout == "42\n"
    empty = execute("input()")
    assert empty.status == "error" and "EOFError" in empty.stderr
    many = execute("import sys; print(len(sys.stdin.read()))", stdin="x" * 3_000_000)
    assert many.stdout == "3000000\n"


def test_memory_of_one_process_and_of_many_is_bounded(execute, leaves_nothing):
    one = execute("x = bytearray(8 << 30)")
    assert (one.exit_code, one.status) == (1, "error") and "MemoryError" in one.stderr
    many = execute(
        "import os, time\nfor _ in range(4):\n  if os.fork() == 0: break\n"
        "x = bytearray(120 << 20)\ntime.sleep(60)",
        timeout=60,
    )
    assert many.status == "memory"
    assert many.message == "Stopped: the memory limit of 256 MB was exceeded."
    shared = execute(
        "import mmap, time\nm = mmap.mmap(-1, 1 << 30)\n"
        "for i in range(0, 1 << 30, 4096): m[i] = 1",
        timeout=60,
    )
    assert shared.status == "memory"


def test_cpu_time_is_bounded_over_all_processes(execute):
    limits = Limits(cpu_seconds=1)
    code = "import os\nfor _ in range(3): os.fork()\nwhile True: pass"
    done = execute(code, timeout=60, limits=limits)
    assert done.status == "timeout"
    assert done.message == "Stopped: the limit of 1 s of CPU time was reached."


def test_disk_files_and_descriptors_are_bounded(execute, first_tier):
    big = execute("open('big', 'wb').write(b'x' * (200 << 20))")
    assert "Errno 27" in big.stderr or "Errno 28" in big.stderr
    many = execute(
        "for i in range(9): open(str(i), 'wb').write(b'x' * (8 << 20))", timeout=30
    )
    assert "Errno 28" in many.stderr
    names = execute("for i in range(10**5): open(str(i), 'w')", timeout=30)
    assert "Errno 28" in names.stderr or "Errno 24" in names.stderr
    held = execute("k = [open('/dev/null') for _ in range(10**4)]")
    assert "Errno 24" in held.stderr


def test_fork_and_thread_bombs_hurt_nobody(execute, run, sandbox, leaves_nothing):
    bomb = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"

    async def both():
        return await asyncio.gather(
            sandbox.execute(bomb, timeout=1.0),
            sandbox.execute("print(6 * 7)", timeout=30.0),
        )

    bombed, good = run(both())
    assert bombed.status == "timeout" and bombed.seconds < 6
    assert good.stdout == "42\n"
    threads = execute(
        "import threading, time\nn = 0\ntry:\n  while True:\n"
        "    threading.Thread(target=time.sleep, args=(9,), daemon=True).start()\n"
        "    n += 1\nexcept RuntimeError: print(n < 300)"
    )
    assert threads.stdout == "True\n"


def test_state_does_not_leak_into_the_next_call(execute, first_tier):
    code = (
        "import os, builtins, random\n"
        "print(os.path.exists('/tmp/leak'), hasattr(builtins, 'LEAK'))\n"
        "open('/tmp/leak', 'w').write('x'); builtins.LEAK = 1\nprint(random.random())"
    )
    first, second = execute(code), execute(code)
    assert first.stdout.startswith("False False\n")
    assert second.stdout.startswith("False False\n")
    assert first.stdout != second.stdout  # Forks do not share random numbers.


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1, 0, None, "5", True])
def test_limits_that_limit_nothing_are_refused(execute, bad):
    with pytest.raises(ValueError, match="timeout is"):
        execute("1", timeout=bad)
    for name in ("memory_mb", "cpu_seconds", "max_processes", "disk_mb"):
        with pytest.raises(ValueError, match=f"{name} is"):
            Limits(**{name: bad})
    with pytest.raises(ValueError, match="workers is"):
        Sandbox(workers=bad)


def test_waiting_is_not_charged_to_the_code(run, sandbox):
    async def many():
        code = "import time; time.sleep(0.2); print(1)"
        calls = (sandbox.execute(code, timeout=2.0) for _ in range(48))
        return await asyncio.gather(*calls)

    done = run(many())
    assert [d.stdout for d in done] == ["1\n"] * 48
    # 48 calls of 0.2 s on 4 workers: the last one waits for at least 2.2 s.
    assert max(d.queue_seconds for d in done) > 2.0 > max(d.seconds for d in done)


def test_a_full_queue_answers_busy(run):
    async def crowd():
        async with Sandbox(workers=1, max_queue=2) as small:
            calls = [small.execute("print(1)", timeout=30.0) for _ in range(6)]
            return await asyncio.gather(*calls)

    done = run(crowd())
    assert sorted(d.status for d in done) == ["busy"] * 3 + ["ok"] * 3
    busy = next(d for d in done if d.status == "busy")
    assert busy.exit_code is None and "waiting already" in busy.message


def test_a_dead_fork_server_is_a_fault_and_is_replaced(run, sandbox):
    async def kill_in_flight():
        call = asyncio.create_task(
            sandbox.execute("import time; time.sleep(9)", timeout=9.0)
        )
        while not sandbox.health()["running"]:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        parents = sandbox.health()["fork_servers"]
        for parent in parents:
            for pid in family(parent) - {parent}:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        with pytest.raises(SandboxError, match="ended unexpectedly"):
            await call
        return parents, await sandbox.execute("print(1)", timeout=30.0)

    parents, done = run(kill_in_flight())
    assert done.stdout == "1\n"
    assert sandbox.health()["restarts"] >= 1
    assert wait_until(lambda: not any(os.path.exists(f"/proc/{p}") for p in parents))


def test_a_call_of_which_nothing_ran_is_retried(run, sandbox):
    async def kill_idle():
        await sandbox.execute("print(1)", timeout=30.0)
        for parent in sandbox.health()["fork_servers"]:
            for pid in family(parent):  # Stopped first: the call is sent to the dead.
                os.kill(pid, signal.SIGSTOP)
            call = asyncio.create_task(sandbox.execute("print(2)", timeout=30.0))
            await asyncio.sleep(0.1)
            for pid in family(parent):
                os.kill(pid, signal.SIGKILL)
            return await call

    assert run(kill_idle()).stdout == "2\n"


def test_an_interpreter_that_does_not_start_is_said(run):
    async def enter():
        async with Sandbox(python="/no/such/python"):
            pass

    with pytest.raises(SandboxError, match="cannot start '/no/such/python'"):
        run(enter())


def test_a_cancelled_call_is_ended(run, sandbox, leaves_nothing):
    async def cancel():
        call = asyncio.create_task(
            sandbox.execute("import time; time.sleep(99)", timeout=99.0)
        )
        await asyncio.sleep(0.3)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    run(cancel())
    assert sandbox.health()["running"] == 0


@pytest.mark.parametrize(
    "path", ["/etc/x", "../x", "a/../../x", "", "a//b", ".", "a\0b", "x" * 300, 7]
)
def test_paths_that_leave_the_directory_are_refused(execute, path):
    with pytest.raises(ValueError, match="file path"):
        execute("1", files={path: b""})
    with pytest.raises(ValueError, match="file path"):
        execute("1", fetch=[path])


def test_files_go_in_and_out(execute):
    done = execute(
        "import os\nos.makedirs('out/deep')\n"
        "open('out/deep/b', 'wb').write(open('in/a', 'rb').read() * 2)",
        files={"in/a": b"\x00\xff"},
        fetch=["out/deep/b", "missing", "out"],
    )
    assert done.status == "ok", done.stderr
    assert done.files == {"out/deep/b": b"\x00\xff" * 2}


def test_links_devices_and_pipes_are_not_fetched(execute):
    names = ["link", "linked/passwd", "pipe", "sparse", "hard", "plain"]
    done = execute(
        "import os\nos.symlink('/etc/passwd', 'link'); os.symlink('/etc', 'linked')\n"
        "os.mkfifo('pipe'); open('sparse', 'w').truncate(15 << 20)\n"
        "open('plain', 'w').write('p'); os.link('plain', 'hard')\n"
        "try: os.link('/etc/passwd', 'host')\nexcept OSError: pass",
        fetch=[*names, "host"],
    )
    assert done.status == "ok", done.stderr
    assert done.files.keys() == {"sparse", "hard", "plain"}
    assert (done.files["hard"], len(done.files["sparse"])) == (b"p", 15 << 20)


def test_many_files_are_fetched(execute):
    names = [f"f{i}" for i in range(2000)]
    code = "for i in range(2000): open(f'f{i}', 'w').write(str(i))"
    assert len(execute(code, fetch=names).files) == 2000
