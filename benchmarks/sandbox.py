"""Cost of a sandboxed call beside a bare subprocess, and behaviour under hostile load.

    python -m benchmarks.sandbox cost            # CPU a call, cells/s of sessions
    python -m benchmarks.sandbox throughput      # calls/s at 1, 16, 256 in flight
    python -m benchmarks.sandbox mixed           # 2,000 calls, one in ten hostile
    python -m benchmarks.sandbox soak --calls 20000

CPU time is that of the whole tree of processes, start-up apart. Ours and bare
subprocesses alternate; figures are medians; the last line is one JSON object.
Wall-clock figures mean little on a machine that others use.
"""

import argparse
import asyncio
import json
import os
import pathlib
import random
import resource
import statistics
import subprocess
import sys
import time

from agentic_jax.sandbox.client import Limits, Sandbox

PROGRAMS = {
    "trivial": "print(1)",
    "numpy": "import numpy as np; print(np.arange(10).sum())",
    "sympy": "from sympy import *; x = symbols('x'); print(integrate(x**2, x))",
}
HOSTILE = (
    "while True: pass",
    "import time; time.sleep(1e6)",
    "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
    "l = []\nwhile True: l.append(bytearray(1 << 20))",
    "while True: print('x' * 100_000)",
    "for i in range(10**6): open(str(i), 'wb').write(b'x' * (1 << 20))",
    "import os; os.kill(os.getpid(), 9)",
    "import threading, time\n"
    "while True: threading.Thread(target=time.sleep, args=(9,)).start()",
)


def tree_cpu_seconds() -> float:
    """Of this process and of all descendants, running or reaped."""
    total = sum(
        sum(resource.getrusage(who)[:2])
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    tick = os.sysconf("SC_CLK_TCK")
    for pid in descendants():
        try:
            stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        total += sum(int(x) for x in stat.rpartition(")")[2].split()[11:15]) / tick
    return total


def descendants() -> list[int]:
    """Pids of all processes below this one."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    found = {os.getpid()}
    while grown := {p for p, parent in parents.items() if parent in found} - found:
        found |= grown
    return sorted(found - {os.getpid()})


async def sandbox_cpu_ms(sandbox: Sandbox, code: str, calls: int) -> float:
    """CPU milliseconds a call of the whole tree, one call after another."""
    before = tree_cpu_seconds()
    for _ in range(calls):
        done = await sandbox.execute(code, timeout=60.0)
        if done.status != "ok":
            raise RuntimeError(f"the call failed: {done}")
    return (tree_cpu_seconds() - before) / calls * 1e3


def subprocess_cpu_ms(code: str, calls: int) -> float:
    """The same for a fresh interpreter without isolation."""
    before = tree_cpu_seconds()
    for _ in range(calls):
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return (tree_cpu_seconds() - before) / calls * 1e3


async def cost(repeats: int) -> dict[str, float]:
    """CPU milliseconds a call of both, their ratio, and cells/s of sessions."""
    figures = {}
    async with Sandbox(workers=4) as sandbox:
        await sandbox.warm()
        for name, code in PROGRAMS.items():
            await sandbox.execute(code, timeout=60.0)
            ours, theirs = [], []
            for _ in range(repeats):
                ours.append(await sandbox_cpu_ms(sandbox, code, 100))
                theirs.append(subprocess_cpu_ms(code, 20 if name == "trivial" else 4))
            ours_ms, theirs_ms = statistics.median(ours), statistics.median(theirs)
            print(
                f"{name}: {ours_ms:.1f} ms of CPU a call, subprocess {theirs_ms:.1f},"
                f" {theirs_ms / ours_ms:.1f} times less"
            )
            figures |= {
                f"{name}_cpu_ms": ours_ms,
                f"{name}_subprocess_cpu_ms": theirs_ms,
                f"{name}_ratio": theirs_ms / ours_ms,
            }
        rates = [await cells_per_second(sandbox, 64, 50) for _ in range(repeats)]
        figures["session_cells_per_s"] = statistics.median(rates)
        print(f"sessions: {figures['session_cells_per_s']:.0f} cells/s over 64")
    return figures


async def cells_per_second(sandbox: Sandbox, sessions: int, cells: int) -> float:
    """Of several sessions at once, their opening left out."""

    async def play(session) -> None:
        for i in range(cells):
            await session.execute(f"x = {i}\nx", timeout=30.0)

    contexts = [sandbox.session() for _ in range(sessions)]
    live = [await context.__aenter__() for context in contexts]
    await asyncio.gather(*(session.execute("x = 0", timeout=30.0) for session in live))
    start = time.monotonic()
    await asyncio.gather(*map(play, live))
    seconds = time.monotonic() - start
    for context in contexts:
        await context.__aexit__(None, None, None)
    return sessions * cells / seconds


async def throughput(repeats: int) -> dict[str, float]:
    """Calls/s of both at several numbers in flight.

    No 256 interpreters with sympy at once: they need more memory than a small machine
    has.
    """
    figures = {}
    async with Sandbox(workers=4) as sandbox:
        await sandbox.warm()
        for name, code in PROGRAMS.items():
            await sandbox.execute(code, timeout=60.0)
            for in_flight in (1, 16, 256):
                compare = name != "sympy" or in_flight < 256
                calls = max(in_flight, {"trivial": 40, "numpy": 16, "sympy": 4}[name])
                ours, theirs = [], []
                for _ in range(repeats):
                    start = time.monotonic()
                    await load(sandbox, [code] * 300, in_flight)
                    ours.append(300 / (time.monotonic() - start))
                    if compare:
                        theirs.append(await subprocess_rate(code, calls, in_flight))
                key = f"{name}_{in_flight}"
                figures[f"{key}_calls_per_s"] = rate = statistics.median(ours)
                line = f"{name}: {rate:.0f} calls/s at {in_flight} in flight"
                if compare:
                    other = statistics.median(theirs)
                    figures[f"{key}_ratio"] = rate / other
                    line += f", subprocess {other:.1f}, {rate / other:.1f} times more"
                print(line)
    return figures


async def subprocess_rate(code: str, calls: int, in_flight: int) -> float:
    """Calls/s of fresh interpreters without isolation."""
    room = asyncio.Semaphore(in_flight)

    async def one() -> None:
        async with room:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", code, stdout=subprocess.PIPE
            )
            await process.communicate()

    start = time.monotonic()
    await asyncio.gather(*(one() for _ in range(calls)))
    return calls / (time.monotonic() - start)


async def load(sandbox: Sandbox, codes: list[str], in_flight: int) -> list:
    """Executions of all the codes; hostile ones get 1 s."""
    room = asyncio.Semaphore(in_flight)

    async def one(code: str):
        async with room:
            timeout = 1.0 if code in HOSTILE else 20.0
            return await sandbox.execute(code, timeout=timeout)

    return await asyncio.gather(*map(one, codes))


async def mixed(calls: int, seed: int) -> dict[str, float]:
    """What one hostile call in ten does to the other calls."""
    failures = 0
    rng = random.Random(seed)
    good = rng.choices(list(PROGRAMS.values()), k=calls)
    both = [rng.choice(HOSTILE) if i % 10 == 9 else c for i, c in enumerate(good)]
    async with Sandbox(workers=4, limits=Limits(memory_mb=256)) as sandbox:
        await sandbox.warm()
        for code in PROGRAMS.values():
            await sandbox.execute(code, timeout=60.0)
        before = traces()
        tails = []
        for label, codes in (("good only", good), ("one in ten hostile", both)):
            start = time.monotonic()
            done = await load(sandbox, codes, 256)
            seconds = time.monotonic() - start
            calm = [d for d, c in zip(done, codes, strict=True) if c not in HOSTILE]
            failed = [d for d in calm if d.status != "ok"]
            times = sorted(d.seconds for d in calm)
            failures += len(failed)
            tails.append(times[int(0.99 * len(times))])
            print(
                f"{label}: {seconds:.1f} s, {len(failed)} of {len(calm)} good calls"
                f" failed, median {times[len(times) // 2] * 1e3:.1f} ms,"
                f" p99 {tails[-1] * 1e3:.1f} ms"
            )
            print(*failed[:3], sep="\n", end="")
            del done, calm, failed  # Their output is not the sandbox's memory,
            await asyncio.sleep(0.1)  # and the finished tasks hold it until now.
        print(f"p99 ratio {tails[1] / tails[0]:.2f}")
        after = traces()
        print_growth(before, after)
    growth = {f"{k}_growth": after[k] - before[k] for k in before}
    return {"failed_good_calls": failures, "p99_ratio": tails[1] / tails[0]} | growth


async def soak(calls: int, seed: int) -> dict[str, float]:
    """Prints traces at the start and at every tenth of many mixed calls."""
    costs = []
    rng = random.Random(seed)
    async with Sandbox(workers=4, limits=Limits(memory_mb=256)) as sandbox:
        await sandbox.warm()
        quick = [c for c in HOSTILE if c not in HOSTILE[:2]]
        codes = [*PROGRAMS.values()] * 10 + quick
        await load(sandbox, codes, 64)
        before = traces()
        for tenth in range(10):
            cpu = tree_cpu_seconds()
            some = [
                rng.choice(quick) if rng.random() < 0.02 else PROGRAMS["trivial"]
                for _ in range(calls // 10)
            ]
            await load(sandbox, some, 256)
            ms = (tree_cpu_seconds() - cpu) / len(some) * 1e3
            costs.append(ms)
            print(f"{(tenth + 1) * len(some)} calls, {ms:.1f} ms of CPU each")
            print_growth(before, after := traces())
    growth = {f"{k}_growth": after[k] - before[k] for k in before}
    return {"first_cpu_ms": costs[0], "last_cpu_ms": costs[-1]} | growth


def traces() -> dict[str, int]:
    """What a leak would show in: processes, descriptors, mounts, files, memory."""
    time.sleep(0.5)
    pids = descendants()
    fds = sum(len(os.listdir(f"/proc/{p}/fd")) for p in [os.getpid(), *pids])
    rss = 0
    for pid in [os.getpid(), *pids]:
        rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        rss += next(int(x.split()[1]) for x in rollup if x.startswith("Pss:"))
    return {
        "processes": len(pids),
        "descriptors": fds,
        "mounts": len(pathlib.Path("/proc/self/mounts").read_text().splitlines()),
        "temporary files": len(os.listdir("/tmp")),
        "memory_mb": rss >> 10,
    }


def print_growth(before: dict[str, int], after: dict[str, int]) -> None:
    """One line of before -> after."""
    print(" ", ", ".join(f"{k} {before[k]} -> {after[k]}" for k in before))


def main(arguments: list[str]) -> None:
    """Runs one of the four measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("cost", "throughput", "mixed", "soak"))
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    measure = {
        "cost": lambda: cost(options.repeats),
        "throughput": lambda: throughput(options.repeats),
        "mixed": lambda: mixed(options.calls, options.seed),
        "soak": lambda: soak(options.calls, options.seed),
    }[options.what]
    figures = asyncio.run(measure())
    print(json.dumps({key: round(float(x), 3) for key, x in figures.items()}))


if __name__ == "__main__":
    main(sys.argv[1:])
