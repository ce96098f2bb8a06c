"""The report of a long run, and of a real one. Minutes, so make test-slow only."""

import json
import time

import pytest

from agentic_jax.monitor.trace import trace_path, write_trace
from agentic_jax.report.build import build_report, open_runs
from tests.launch.test_quickstart import run as run_module
from tests.report.page import Page, open_browser
from tests.report.runs import Words, trace_row, write_run

pytestmark = pytest.mark.slow
STEPS, GROUPS, SIZE = 300, 32, 16
SECONDS_TO_OPEN = 3.0


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


def test_a_run_of_300_steps_and_512_trajectories_opens_at_once(tmp_path, browser):
    workdir = write_run(tmp_path / "rl", steps=STEPS, trace_steps=())
    names = [f"tool/metric_{i}" for i in range(48)]
    metrics = [
        {"step": s, **{n: (s * 7 + i) % 100 / 100 for i, n in enumerate(names)}}
        for s in range(STEPS)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in metrics)
    (workdir / "metrics.jsonl").write_text(lines)
    words = Words()
    rows = [
        trace_row(words, group=g, sample=s, score=float((g + s) % 3 > 0))
        for g in range(GROUPS)
        for s in range(SIZE)
    ]
    write_trace(workdir, 0, rows, decode=words.decode)
    first = trace_path(workdir, 0).read_text()
    for step in range(1, STEPS):
        text = first.replace('"step":0', f'"step":{step}')
        trace_path(workdir, step).write_text(text)
    runs = open_runs([workdir])
    start = time.monotonic()
    assert build_report(runs, tmp_path / "report") == STEPS
    build_seconds = time.monotonic() - start
    assert build_report(runs, tmp_path / "report") == 0
    page = Page(browser, (tmp_path / "report" / "index.html").as_uri(), runs[0].key)

    def seconds(link, ready):
        start = time.monotonic()
        page.visit(link)
        page.wait(ready)
        return time.monotonic() - start

    curves = seconds("#/", "return document.querySelectorAll('.card').length === 48")
    table = "return document.querySelectorAll('tbody tr').length"
    groups = seconds(f"#/{page.run}/299", f"{table} === {GROUPS}")
    samples = seconds(f"#/{page.run}/150?by=samples", f"{table} === {GROUPS * SIZE}")
    tokens = seconds(f"#/{page.run}/7/31.15", "return document.querySelector('.turn')")
    start = time.monotonic()
    page.visit("#/search?q=nothing has this")
    page.wait("return document.querySelector('.search progress')?.hidden")
    search = time.monotonic() - start
    page.check_nothing_failed()
    print(
        f"build {build_seconds:.1f} s; curves {curves:.2f}, groups {groups:.2f}, "
        f"samples {samples:.2f}, tokens {tokens:.2f}, search of all {search:.1f} s"
    )
    assert max(curves, groups, samples, tokens) < SECONDS_TO_OPEN


def test_a_real_run_from_the_command_to_the_token(tmp_path, browser):
    done = run_module("launch.quickstart", "--size=tiny", f"--workdir={tmp_path}")
    assert done.returncode == 0, done.stderr
    done = run_module("launch.report", f"--workdir={tmp_path / 'rl'}")
    assert done.returncode == 0, done.stderr
    index = tmp_path / "rl" / "report" / "index.html"
    assert done.stdout.strip() == str(index)
    page = Page(browser, index.as_uri())
    page.visit("#/")
    page.wait("return document.querySelectorAll('.card').length > 40")
    page.click_at(".card[data-metric='reward/mean'] canvas", across=0.9)
    page.wait("return document.querySelector('.chip')")
    page.click(".chip")
    page.wait("return document.querySelector('.turn .t.sampled')")
    page.click(".turn .t.sampled")
    assert "entropy" in page.texts(".facts-of-token")[0]
    page.check_nothing_failed()
