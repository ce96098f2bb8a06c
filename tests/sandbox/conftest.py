"""One running sandbox for all tests of the package, and a way to await things."""

import asyncio
import functools
import os
import pathlib
import subprocess
import sys
import time

import pytest

from agentic_jax.sandbox.client import Limits, Sandbox


@pytest.fixture(scope="session")
def run():
    """Runs a coroutine on the loop that the sandbox lives on."""
    loop = asyncio.new_event_loop()
    yield loop.run_until_complete
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.fixture(scope="session")
def sandbox(run):
    box = Sandbox(workers=4, limits=Limits(memory_mb=256, disk_mb=16))
    run(box.__aenter__())
    yield box
    run(box.close())


@pytest.fixture
def execute(run, sandbox):
    """Executes code and returns what it gave; patient, as a test machine is busy."""

    def execute(code, *, timeout=30.0, **options):
        return run(sandbox.execute(code, timeout=timeout, **options))

    return execute


def family(pid):
    """Pids of a process and all its descendants."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    found = {pid}
    while grown := {p for p, parent in parents.items() if parent in found} - found:
        found |= grown
    return found


def wait_until(holds, *, seconds=5.0):
    """Whether a condition comes true in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture
def leaves_nothing(sandbox):
    """Fails the test if processes or descriptors are left after it."""

    def counts():
        return len(family(os.getpid())), len(os.listdir("/proc/self/fd"))

    before = counts()
    yield
    assert wait_until(lambda: counts() <= before), (before, counts())


@pytest.fixture(scope="session")
def serving():
    """URL of a service with certain flags, started once; all stop at the end."""
    services = []

    @functools.cache
    def start(*flags):
        service = subprocess.Popen(
            [sys.executable, "-m", "launch.serve_sandbox", "--port=0", *flags],
            cwd=pathlib.Path(__file__).parents[2],
            env=os.environ | {"CANARY": "canary-7f3a91"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        services.append(service)
        return service.stdout.readline().split()[-1]

    yield start
    for service in services:
        service.terminate()
        service.stdout.close()
        service.wait()


@pytest.fixture
def first_tier(sandbox):
    """Skips what only namespaces promise where a container refuses them."""
    if sandbox.health()["tier"] != "namespaces":
        pytest.skip("namespaces are refused here; test_tiers has the second tier")
