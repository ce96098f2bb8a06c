"""Runs a file of hostile programs against a running sandbox service.

    python -m tests.sandbox_attacks FILE.json --url http://127.0.0.1:8080

Prints one line a case and exits with the number of cases that do not hold. On the
service's own machine it also looks for processes, mounts and descriptors left behind.
"""

import argparse
import http.client
import json
import os
import pathlib
import re
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

_SETTLE_SECONDS = 3.0


def post(url: str, route: str, body: dict, *, encoding: str = "utf-8") -> dict:
    data = json.dumps(body, ensure_ascii=encoding == "utf-8").encode(encoding)
    request = urllib.request.Request(
        url + route, data, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def get(url: str, route: str) -> dict:
    with urllib.request.urlopen(url + route, timeout=30) as answer:
        return json.load(answer)


def problems_of(want: dict, result: dict, seconds: float, limit: float) -> list[str]:
    """What does not hold of one case, in words."""
    stdout, stderr = result["stdout"], result["stderr"]
    found = []

    def check(holds: bool, text: str) -> None:
        if not holds:
            found.append(text)

    for key, value in want.items():
        if key in ("status", "return_code"):
            check(result[key] in value, f"{key} {result[key]!r}, want {value}")
        elif key == "stdout_contains":
            check(all(x in stdout for x in value), f"stdout lacks one of {value}")
        elif key == "stderr_contains":
            check(all(x in stderr for x in value), f"stderr lacks one of {value}")
        elif key == "stdout_lacks":
            check(not any(x in stdout for x in value), f"stdout has one of {value}")
        elif key == "stderr_lacks":
            check(not any(x in stderr for x in value), f"stderr has one of {value}")
        elif key == "stdout_equals":
            check(stdout == value, f"stdout is {stdout!r:.100}, want {value!r}")
        elif key == "stdout_matches":
            check(bool(re.search(value, stdout)), f"stdout does not match {value}")
        elif key == "stderr_matches":
            check(bool(re.search(value, stderr)), f"stderr does not match {value}")
        elif key == "stdout_count":
            for word, count in value.items():
                seen = stdout.count(word)
                check(seen == count, f"{word} is in stdout {seen} times, want {count}")
        elif key == "max_stdout_bytes":
            check(len(stdout.encode()) <= value, f"stdout is longer than {value}")
        elif key == "within_s":
            check(seconds <= value, f"took {seconds:.2f} s, want {value}")
        elif key == "returns_within_limit_plus_s":
            check(seconds <= limit + value, f"took {seconds:.2f} s, limit {limit}")
        elif key != "note":
            check(False, f"the checker does not know {key!r}")
    return found


def traces(pid: int) -> dict[str, int]:
    """Processes, descriptors and mounts of the service, where this user may look."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    family = {pid}
    while grown := {p for p, parent in parents.items() if parent in family} - family:
        family |= grown
    counts = {"processes": len(family)}
    try:
        counts["descriptors"] = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        pass
    counts["mounts"] = len(pathlib.Path("/proc/self/mounts").read_text().splitlines())
    return counts


def leftovers(pid: int, before: dict[str, int]) -> list[str]:
    """What is still there some time after a case, in words."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while True:
        after = traces(pid)
        more = [k for k in after if after[k] > before.get(k, after[k])]
        if not more or time.monotonic() > deadline:
            return [f"{k}: {before[k]} before, {after[k]} after" for k in more]
        time.sleep(0.05)


def run_case(url: str, case: dict, host_file: str) -> list[str]:
    """Runs one case and the check that the service still answers."""
    health = get(url, "/health")
    code = case["code"].replace("SPID", str(health["pid"]))
    zygotes = health["fork_servers"] or [health["pid"]]
    code = code.replace("ZPID", str(zygotes[0])).replace("HOSTFILE", host_file)
    skipped = ("name", "want", "code", "code_encoding")
    body = {k: v for k, v in case.items() if k not in skipped} | {"code": code}
    encoding = "latin-1" if "latin-1" in case.get("code_encoding", "") else "utf-8"
    before = traces(health["pid"])
    start = time.monotonic()
    try:
        answer = post(url, "/run_code", body, encoding=encoding)
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as error:
        return [f"no answer: {error}"]
    seconds = time.monotonic() - start
    if answer["run_result"] is None:
        return [f"sandbox fault: {answer['message']}"]
    limit = case.get("run_timeout", 10.0)
    found = problems_of(case["want"], answer["run_result"], seconds, limit)
    if found:
        found.append(f"result: {json.dumps(answer['run_result'])[:400]}")
    found += leftovers(health["pid"], before)
    after = post(url, "/run_code", {"code": "print(6 * 7)", "run_timeout": 10})
    if not after["run_result"] or after["run_result"]["stdout"] != "42\n":
        found.append(f"the next call failed: {after}")
    return found


def main(arguments: list[str]) -> int:
    """Number of cases that do not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--url", required=True)
    parser.add_argument("--only", default="", help="substring of case names")
    options = parser.parse_args(arguments)
    cases = json.loads(options.file.read_text())["cases"]
    cases = [case for case in cases if options.only in case["name"]]
    for code in ("1", "import numpy", "import sympy"):  # Fork servers are up, then.
        post(options.url, "/run_code", {"code": code, "run_timeout": 10})
    failed = 0
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as host_file:
        os.chmod(host_file.name, 0o644)
        for case in cases:
            found = run_case(options.url.rstrip("/"), case, host_file.name)
            failed += bool(found)
            print("FAILS" if found else "holds", case["name"])
            for line in found:
                print("     ", line)
    print(f"{len(cases) - failed} of {len(cases)} hold")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
