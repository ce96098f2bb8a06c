"""A served report in a browser, and trajectories of 20,000 tokens in it."""

import asyncio
import contextlib
import json
import threading
import time

import pytest
from aiohttp import web

from agentic_jax.monitor.trace import write_trace
from agentic_jax.report.build import open_runs
from agentic_jax.report.server import HOST, make_app
from tests.report.page import Page, open_browser
from tests.report.runs import Words, trace_row, write_run

pytestmark = pytest.mark.slow
TOKENS, SIZE = 20_000, 16
SECONDS_TO_OPEN, SECONDS_TO_ACT = 8.0, 2.0


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@contextlib.contextmanager
def served(runs, out):
    """The address of a report that a thread serves."""
    loop = asyncio.new_event_loop()

    async def start():
        runner = web.AppRunner(make_app(runs, out), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, HOST, 0).start()
        return runner

    runner = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://{HOST}:{runner.addresses[0][1]}/"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def long_row(words, sample):
    """A trajectory of TOKENS tokens in 20 turns, each of them with a call."""
    row = trace_row(words, sample=sample, score=float(sample % 2))
    call, result, turns = 800, 200, TOKENS // 1000
    texts = [f"w{i % 500} " for i in range(call + result)]
    ids = words.ids(texts) * turns
    mask = ([1] * call + [0] * result) * turns
    noise = [((i * 7919 + sample) % 1000) / 500 for i in range(TOKENS)]
    numbers = [m * x for m, x in zip(mask, noise, strict=True)]
    row["tokens"] = {
        "ids": ids,
        "mask": mask,
        "turn": [1 + i // 1000 for i in range(TOKENS)],
        "engine_logprobs": [-x for x in numbers],
        "trainer_logprobs": [-0.9 * x for x in numbers],
        "entropy": numbers,
        "advantage": [float(m) for m in mask],
    }
    row["turns"] = [row["turns"][0]] * turns
    return row


def test_a_running_run_is_followed_from_the_curve_to_the_token(tmp_path, browser):
    workdir = write_run(tmp_path / "rl", steps=2)
    runs = open_runs([workdir])
    with served(runs, tmp_path / "out") as address:
        page = Page(browser, address, runs[0].key)
        page.visit("#/")
        page.wait("return document.querySelectorAll('.card').length === 2")
        row = {"step": 2, "reward/mean": 0.5, "policy/entropy": 1.0, "tool/new": 1.0}
        with (workdir / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        page.wait("return document.querySelectorAll('.card').length === 3")
        page.visit(f"#/{page.run}/1/0.0")
        page.wait("return document.querySelector('.turn')")
        page.click(".t[data-i='8']")
        assert page.hash().endswith("?token=8")
        page.check_nothing_failed()


def test_a_group_of_very_long_trajectories_stays_usable(tmp_path, browser):
    workdir = write_run(tmp_path / "rl", steps=1)
    words = Words()
    rows = [long_row(words, sample) for sample in range(SIZE)]
    write_trace(workdir, 0, rows, decode=words.decode)
    runs = open_runs([workdir])

    def seconds(action, ready):
        start = time.monotonic()
        action()
        page.wait(ready)
        return time.monotonic() - start

    with served(runs, tmp_path / "out") as address:
        page = Page(browser, address, runs[0].key)
        place = f"#/{page.run}/0/0.3"
        built = seconds(
            lambda: page.visit(f"#/{page.run}/0"),
            "return document.querySelectorAll('.chip').length === 16",
        )
        opened = seconds(
            lambda: page.visit(place),
            f"return document.querySelectorAll('.turns .t').length === {TOKENS}",
        )
        recolored = seconds(
            lambda: page.choose(".color", "ratio"),
            "return document.querySelector('.t.above, .t.below')",
        )
        picked = seconds(
            lambda: page.click(".t.sampled"),
            "return document.querySelector('.t.chosen')",
        )
        linked = seconds(
            lambda: page.visit(f"{place}?token=15500"),
            "return document.querySelector('.t.chosen')",
        )
        assert "position 15500" in page.texts(".facts-of-token")[0]
        beside = seconds(
            lambda: page.visit(f"{place}?with=4"),
            f"return document.querySelectorAll('.turns .t').length === {2 * TOKENS}",
        )
        page.check_nothing_failed()
    print(
        f"built {built:.1f} s, opened {opened:.2f}, recoloured {recolored:.2f}, next "
        f"token {picked:.2f}, a link to a token {linked:.2f}, two {beside:.2f}"
    )
    assert max(opened, linked, beside) < SECONDS_TO_OPEN
    assert max(recolored, picked) < SECONDS_TO_ACT
