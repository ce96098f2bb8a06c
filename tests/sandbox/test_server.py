import asyncio
import base64
import io
import json

import aiohttp
import pytest

from agentic_jax.sandbox.client import Limits, SandboxClient, SandboxError, Submission
from agentic_jax.sandbox.server import serve


@pytest.fixture(scope="module")
def url(run, sandbox):
    """A service over the shared sandbox, on a free port."""
    runner = run(serve(sandbox, host="127.0.0.1", port=0, limits=Limits()))
    host, port = runner.addresses[0][:2]
    yield f"http://{host}:{port}"
    run(runner.cleanup())


@pytest.fixture
def post(run, url):
    """Status and JSON of one request; the body is JSON, or bytes as they are."""

    async def send(route, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with aiohttp.ClientSession() as http:
            async with http.post(url + route, data=data) as answer:
                return answer.status, await answer.json(content_type=None)

    return lambda route, body: run(send(route, body))


def client_call(run, urls, act):
    async def call():
        async with SandboxClient(urls) as client:
            return await act(client)

    return run(call())


def test_run_code_has_the_fields_of_sandboxfusion(post):
    status, answer = post(
        "/run_code",
        {
            "compile_timeout": 10,
            "run_timeout": 30,
            "memory_limit_MB": -1,
            "code": "print(input())\nopen('o', 'w').write(open('i').read() * 2)",
            "stdin": "hello",
            "language": "python",
            "files": {"i": base64.b64encode(b"ab").decode()},
            "fetch_files": ["o"],
        },
    )
    assert status == 200
    assert (answer["status"], answer["compile_result"]) == ("Success", None)
    assert base64.b64decode(answer["files"]["o"]) == b"abab"
    result = answer["run_result"]
    assert (result["status"], result["return_code"]) == ("Finished", 0)
    assert (result["stdout"], result["stderr"]) == ("hello\n", "")
    assert 0 < result["execution_time"] < 30


def test_failures_are_typed_as_sandboxfusion_types_them(post):
    late = post("/run_code", {"code": "while True: pass", "run_timeout": 0.3})[1]
    assert (late["status"], late["run_result"]["status"]) == (
        "Failed",
        "TimeLimitExceeded",
    )
    wrong = post("/run_code", {"code": "1/0"})[1]
    assert (wrong["status"], wrong["run_result"]["status"]) == ("Failed", "Error")
    other = post("/run_code", {"code": "int main;", "language": "cpp"})[1]
    assert other["status"] == "SandboxError" and "python" in other["message"]


def test_programs_that_are_fed_input_are_not_echoed(post):
    code = "import sys\nsys.stdout.write('12')"
    graded = post("/run_code", {"code": code, "stdin": ""})[1]
    assert graded["run_result"]["stdout"] == "12"
    shown = post("/run_code", {"code": "3 + 4"})[1]
    assert shown["run_result"]["stdout"] == "7\n"


def test_run_jupyter_keeps_variables_and_stops_at_an_error(post):
    cells = ["x = 1", "print(x)\nx + 1", "1/0", "print('never')"]
    answer = post("/run_jupyter", {"cells": cells, "cell_timeout": 20})[1]
    assert [c["stdout"] for c in answer["cells"]] == ["", "1\n2\n", ""]
    assert answer["status"] == "Failed"
    assert answer["cells"][2]["error"][0]["ename"] == "ZeroDivisionError"
    fetched = post(
        "/run_jupyter", {"cells": ["open('f', 'w').write('x')"], "fetch_files": ["f"]}
    )[1]
    assert base64.b64decode(fetched["files"]["f"]) == b"x"


def test_a_batch_is_judged_item_by_item(post):
    double = "print(int(input()) * 2)"
    items = [
        {"type": "python", "solution": double, "input": "1", "expected_output": "2"},
        {"solution": "1/0", "expected_output": "2"},
        {"type": "python", "solution": double, "input": "2", "expected_output": "5"},
    ]
    results = post("/judge/batch", {"type": "batch", "submissions": items})[1][
        "results"
    ]
    assert [r["success"] for r in results] == [True, False, False]
    assert [r["run_success"] for r in results] == [True, False, True]
    assert [r["reason"] for r in results] == ["", "error", ""]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[1]",
        b"\xff\xfe",
        b"[" * 100_000,
        {},
        {"code": 1},
        {"code": None},
        {"code": "1", "run_timeout": None},
        {"code": "1", "run_timeout": "5"},
        {"code": "1", "run_timeout": -1},
        {"code": "1", "run_timeout": float("nan")},
        {"code": "1", "run_timeout": float("inf")},
        {"code": "1", "run_timeout": True},
        {"code": "1", "memory_limit_MB": 0},
        {"code": "1", "memory_limit_MB": 1.5},
        {"code": "1", "stdin": 5},
        {"code": "1", "files": {"/etc/x": ""}},
        {"code": "1", "files": {"../x": ""}},
        {"code": "1", "files": {"x": "not base64"}},
        {"code": "1", "files": {"x": 5}},
        {"code": "1", "files": []},
        {"code": "1", "fetch_files": ["/etc/passwd"]},
        {"code": "1", "fetch_files": [1]},
        {"code": "1", "limits": {"disc_mb": 1}},
    ],
)
def test_malformed_requests_get_400_and_a_reason(post, body):
    status, answer = post("/run_code", body)
    assert status == 400
    assert answer["error"]
    assert post("/run_code", {"code": "print(1)"})[1]["run_result"]["stdout"] == "1\n"


@pytest.mark.parametrize(
    "route",
    ["/execute", "/run_jupyter", "/grade", "/judge/batch", "/session/execute"],
)
def test_every_route_refuses_an_empty_object(post, route):
    assert post(route, {})[0] == 400


def test_huge_slow_and_vanishing_clients_leave_it_answering(run, url, sandbox):
    async def abuse():
        async with aiohttp.ClientSession() as http:
            body = b'{"code": "' + b"x" * (100 << 20) + b'"}'
            try:
                async with http.post(
                    url + "/run_code", data=io.BytesIO(body)
                ) as answer:
                    assert answer.status == 413
            except aiohttp.ClientError:  # It may hang up before we have sent it all.
                pass
        host, port = url.removeprefix("http://").split(":")
        head = b"POST /run_code HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n{"
        slow = [await asyncio.open_connection(host, port) for _ in range(20)]
        for _, writer in slow:
            writer.write(head)
        async with aiohttp.ClientSession() as http:
            gone = {"code": "import time; time.sleep(99)", "run_timeout": 99}
            with pytest.raises(TimeoutError):
                timeout = aiohttp.ClientTimeout(total=0.5)
                await http.post(url + "/run_code", json=gone, timeout=timeout)
            while sandbox.health()["running"]:  # The call ends with its client.
                await asyncio.sleep(0.01)
            async with http.post(url + "/run_code", json={"code": "1 + 1"}) as answer:
                good = await answer.json()
        for _, writer in slow:
            writer.close()
        return good

    assert run(abuse())["run_result"]["stdout"] == "2\n"


def test_health_and_metrics_tell_the_state(run, url):
    async def get(route):
        async with aiohttp.ClientSession() as http, http.get(url + route) as answer:
            return await answer.text()

    health = json.loads(run(get("/health")))
    assert health["tier"] in ("namespaces", "landlock") and health["workers"] == 4
    assert {"running", "waiting", "pid", "fork_servers", "versions"} <= health.keys()
    metrics = run(get("/metrics"))
    assert 'sandbox_calls_total{status="ok"}' in metrics
    assert "sandbox_waiting 0\n" in metrics


def test_client_and_sandbox_answer_alike(run, url, sandbox):
    options = {"timeout": 30.0, "files": {"a": b"\x00"}, "fetch": ["a"], "echo": True}

    async def call(box):
        done = await box.execute("import sys; sys.stderr.write('e')\n3", **options)
        return done.stdout, done.stderr, done.status, done.exit_code, done.files

    assert client_call(run, url, call) == run(call(sandbox))

    async def grade(box):
        good = Submission("def f(x): return [x]", [[1], [2]], [[1], [3]], function="f")
        grades = await box.grade([good])
        return [test.passed for test in grades[0].tests]

    assert client_call(run, url, grade) == run(grade(sandbox)) == [True, False]

    async def session(box):
        async with box.session(files={"f": b"7"}) as live:
            await live.execute("x = int(open('f').read())", timeout=30.0)
            return (await live.execute("x", timeout=30.0)).stdout

    assert client_call(run, url, session) == run(session(sandbox)) == "7\n"


def test_client_passes_limits_on_and_refusals_back(run, url):
    small = Limits(memory_mb=64)
    hog = "x = bytearray(100 << 20)"
    done = client_call(run, url, lambda c: c.execute(hog, timeout=30.0, limits=small))
    assert "MemoryError" in done.stderr
    with pytest.raises(ValueError, match="timeout is nan"):
        client_call(run, url, lambda c: c.execute("1", timeout=float("nan")))
    with pytest.raises(ValueError, match="file path"):
        client_call(run, url, lambda c: c.execute("1", timeout=30.0, fetch=["/x"]))


def test_a_dead_service_is_passed_over(run, url):
    async def several(client):
        return [await client.execute("print(1)", timeout=30.0) for _ in range(4)]

    done = client_call(run, ["http://127.0.0.1:9", url], several)
    assert [d.stdout for d in done] == ["1\n"] * 4
    with pytest.raises(SandboxError, match="no sandbox service answers"):
        client_call(run, "http://127.0.0.1:9", several)


def test_calls_go_to_the_least_loaded(run, url):
    async def spread(client):
        client._services[0].in_flight = 5
        chosen = client._choose(())
        client._services[1].in_flight = 9
        return chosen.url, client._choose(()).url

    assert client_call(run, ["http://127.0.0.1:9", url], spread) == (
        url,
        "http://127.0.0.1:9",
    )
