import asyncio
import json

from aiohttp.test_utils import TestClient, TestServer

from agentic_jax.report.build import open_runs
from agentic_jax.report.server import make_app
from tests.report.runs import write_run


def get(runs, out, *paths, host=None):
    """Status and text of each path, in order."""

    async def ask():
        async with TestClient(TestServer(make_app(runs, out))) as client:
            headers = {"Host": host} if host else {}
            answers = []
            for path in paths:
                if callable(path):
                    path()
                    continue
                async with client.get(path, headers=headers) as response:
                    answers.append((response.status, await response.text()))
            return answers

    return asyncio.run(ask())


def test_a_step_is_built_when_it_is_asked_for(tmp_path):
    runs = open_runs([write_run(tmp_path / "rl", steps=2)])
    out, key = tmp_path / "out", runs[0].key
    page, runs_file, group = get(
        runs, out, "/", "/data/runs.js", f"/data/{key}/groups/1/0.js"
    )
    assert page[0] == 200 and "<!doctype html>" in page[1]
    assert r"\"live\":true" in runs_file[1]
    assert group[0] == 200 and "2*3?" in group[1]
    steps = out / "data" / key / "steps"
    assert [path.name for path in steps.iterdir()] == ["1.js"]


def test_a_running_run_is_followed(tmp_path):
    workdir = write_run(tmp_path / "rl", steps=1)
    runs = open_runs([workdir])

    def grow():
        with (workdir / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": 1, "reward/mean": 0.123}) + "\n")

    before, after = get(runs, tmp_path / "o", "/data/runs.js", grow, "/data/runs.js")
    assert "0.123" not in before[1] and "0.123" in after[1]


def test_only_files_of_the_report_are_given_and_only_to_this_machine(tmp_path):
    runs = open_runs([write_run(tmp_path / "rl", steps=1)])
    out, key = tmp_path / "rl" / "report", runs[0].key
    paths = ("/%2e%2e/config.json", "/data", f"/data/{key}/steps/7.js", "/none.js")
    assert [status for status, _ in get(runs, out, *paths)] == [404] * 4
    (other,) = get(runs, out, "/", host="rebound.example")
    assert other[0] == 403
