import asyncio

import pytest


@pytest.fixture
def cells(run, sandbox):
    """Runs cells in one session and returns what each gave."""

    def cells(*codes, timeout=30.0):
        async def play():
            async with sandbox.session() as session:
                return [await session.execute(code, timeout=timeout) for code in codes]

        return run(play())

    return cells


def test_variables_live_from_cell_to_cell(cells, leaves_nothing):
    done = cells("x = 1", "x += 1\nx", "import os\ndef f(): return x", "f() * 10")
    assert [d.stdout for d in done] == ["", "2\n", "", "20\n"]
    assert {d.status for d in done} == {"ok"}


def test_sessions_do_not_see_each_other(run, sandbox):
    async def play():
        async with sandbox.session() as a, sandbox.session() as b:
            await a.execute("x = 1; open('f', 'w')", timeout=30.0)
            return await b.execute(
                "import os; print('x' in globals(), os.path.exists('f'))", timeout=30.0
            )

    assert run(play()).stdout == "False False\n"


def test_a_time_out_keeps_the_variables(cells):
    late, after = cells("x = 5\nprint('a')\nwhile True: pass", "x", timeout=0.4)
    assert (late.status, late.stdout) == ("timeout", "a\n")
    assert late.message.endswith("variables stay.")
    assert (after.status, after.stdout) == ("ok", "5\n")


def test_a_cell_that_ignores_the_interrupt_loses_the_session(cells, leaves_nothing):
    stubborn = (
        "import signal\nsignal.signal(2, signal.SIG_IGN)\nx = 1\nwhile True: pass"
    )
    late, after = cells(stubborn, "x", timeout=0.3)
    assert late.status == "timeout" and "variables are lost" in late.message
    assert after.status == "error" and "NameError" in after.stderr


@pytest.mark.parametrize(
    "end, exit_code",
    [("import os; os._exit(0)", 0), ("import os; os.kill(os.getpid(), 9)", -9)],
)
def test_a_dead_session_is_said_and_restarted(cells, end, exit_code):
    dead, after = cells(end, "1 + 1")
    assert (dead.status, dead.exit_code) == ("error", exit_code)
    assert "variables are lost" in dead.message
    assert after.stdout == "2\n"


def test_exit_ends_the_cell_only(cells):
    left, after = cells("x = 1\nexit(3)", "x")
    assert (left.status, left.exit_code) == ("error", 3)
    assert after.stdout == "1\n"


def test_a_forged_or_closed_channel_harms_only_its_own_session(cells, execute):
    forged, closed, after = cells(
        "import os\nos.write(3, b'x' * 5000)\nprint(1)", "os.close(3)", "1 + 1"
    )
    assert forged.stdout == "1\n"
    assert closed.status == "error"
    assert after.stdout == "2\n"
    assert execute("print(1)").stdout == "1\n"


def test_output_of_a_background_thread_comes_with_a_later_cell(cells):
    code = (
        "import threading, time\n"
        "def late():\n  time.sleep(0.2)\n  print('late')\n"
        "threading.Thread(target=late).start()\nprint('now')"
    )
    first, second = cells(code, "time.sleep(0.4)")
    assert (first.stdout, second.stdout) == ("now\n", "late\n")


def test_cells_asked_for_together_run_in_order(run, sandbox):
    async def play():
        async with sandbox.session() as session:
            cells = [f"x = globals().get('x', '') + '{i}'\nx" for i in range(5)]
            return await asyncio.gather(
                *(session.execute(cell, timeout=30.0) for cell in cells)
            )

    assert [d.stdout for d in run(play())][-1] == "'01234'\n"


def test_many_sessions_at_once(run, sandbox, leaves_nothing):
    async def one(i):
        async with sandbox.session() as session:
            for _ in range(3):
                await session.execute(f"x = globals().get('x', {i}) + 1", timeout=30.0)
            return await session.execute("x", timeout=30.0)

    async def all_of_them():
        return await asyncio.gather(*map(one, range(16)))

    assert [d.stdout for d in run(all_of_them())] == [f"{i + 3}\n" for i in range(16)]
