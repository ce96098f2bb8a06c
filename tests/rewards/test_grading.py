import asyncio
import contextlib
import os
import pathlib
import signal
import threading
import time

import pytest

from agentic_jax.rewards.grading import (
    Grader,
    GradingCrash,
    GradingTimeout,
    Verdict,
    VerifierError,
)

ENDLESS = "9^{9^{9}}"  # 370 million digits: one operation that no signal handler stops.


@pytest.fixture(scope="module")
def grader():
    grader = Grader(workers=2, timeout=0.5)
    asyncio.run(grader.start())
    yield grader
    grader.close()


def grade(grader, prediction, gold):
    return asyncio.run(grader.grade(prediction, gold))


def processes_in_group(group):
    """State of each process of the group, by process id."""
    states = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # Others end while we look.
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                states[int(stat.parent.name)] = fields[0]
    return states


def test_equal_and_unequal_answers(grader):
    assert grade(grader, "(x+1)^2", "x^2+2x+1") is True
    assert grade(grader, "(1,2)", "12") is False


def test_numbers_and_strings_start_no_process():
    grader = Grader(workers=1)
    assert grade(grader, "0.5", "\\frac12") and not grade(grader, "3", "4")
    assert grader.counts["quick"] == 2 and not grader._processes
    grader.close()


def test_an_endless_comparison_is_a_counted_timeout_and_the_next_one_works(grader):
    before = grader.counts
    started = time.monotonic()
    with pytest.raises(GradingTimeout, match="ended by signal"):
        grade(grader, ENDLESS, "2x")
    assert time.monotonic() - started < 30  # 0.5 CPU seconds on a busy machine.
    assert grader.counts["timeout"] == before["timeout"] + 1
    assert grader.counts["compared"] == before["compared"]
    verdict = asyncio.run(grader.verdict(ENDLESS, "2x"))
    assert (verdict.equal, verdict.failure) == (False, "timeout")
    for _ in range(3):
        assert grade(grader, "a+b", "b+a")


def test_a_long_nested_answer_is_wrong_at_once(grader):
    assert not grade(grader, "\\sqrt{" * 1_500 + "2" + "}" * 1_500, "x")


def test_many_comparisons_at_once_all_come_back_in_order(grader):
    async def run():
        pairs = [(f"x+{i}", f"{i + i % 2}+x") for i in range(40)]
        return await asyncio.gather(*(grader.verdict(*pair) for pair in pairs))

    assert asyncio.run(run()) == [Verdict(i % 2 == 0) for i in range(40)]


def test_a_killed_worker_is_a_counted_crash_and_is_replaced():
    grader = Grader(workers=1)
    try:
        assert grade(grader, "a+b", "b+a")
        (process,) = grader._processes
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        with pytest.raises(GradingCrash):
            grade(grader, "a+c", "c+a")
        assert grader.counts["crash"] == 1
        assert grade(grader, "a+c", "c+a")
        assert issubclass(GradingCrash, VerifierError)
    finally:
        grader.close()


def test_a_crash_between_comparisons_gives_no_answer_to_the_wrong_one():
    grader = Grader(workers=1)
    try:
        assert grade(grader, "a+b", "b+a")
        (process,) = grader._processes
        (child,) = processes_in_group(process.pid).keys() - {process.pid}
        os.kill(child, signal.SIGKILL)
        verdict = asyncio.run(grader.verdict("a+c", "c+a"))
        assert verdict.failure == "crash"
        assert not grade(grader, "a+d", "d+b")
        assert grade(grader, "a+d", "d+a")
    finally:
        grader.close()


def test_the_rest_of_a_line_that_a_dying_child_began_to_read_is_skipped():
    grader = Grader(workers=1)
    try:
        assert grade(grader, "a+b", "b+a")
        (process,) = grader._processes
        process.stdin.write(b'"id": 7, "prediction": "a", "gold": "b"}\n')
        assert grade(grader, "a+d", "d+a")
        assert grader.counts["crash"] == 0
    finally:
        grader.close()


def test_an_answer_given_before_costs_no_process_but_counts():
    grader = Grader(workers=1)
    try:
        assert grade(grader, "a+b", "b+a")
        (process,) = grader._processes
        os.killpg(process.pid, signal.SIGSTOP)
        assert grade(grader, "a+b", "b+a")
        assert grader.counts["compared"] == 2
    finally:
        grader.close()


def test_it_works_from_several_threads_with_loops_of_their_own(grader):
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(grade(grader, "a+b", "b+a")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4


def test_closing_leaves_no_process_behind():
    grader = Grader(workers=1)
    assert grade(grader, "a+b", "b+a")
    (process,) = grader._processes
    grader.close()
    assert process.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 30  # A busy kernel may be slow to end the child.
    while set(processes_in_group(process.pid).values()) - {"Z", "X"}:
        assert time.monotonic() < deadline


def test_impossible_limits_are_refused():
    for options in ({"workers": 0}, {"timeout": 0.0}, {"timeout": float("inf")}):
        with pytest.raises(ValueError, match="must be positive"):
            Grader(**options)
