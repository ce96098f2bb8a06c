"""Grades many mathematical answers, one in a hundred of them pathological.

    python -m benchmarks.grading --answers 10000

Prints the seconds, what became of the answers, and how many are wrong or lost.
"""

import argparse
import asyncio
import collections
import resource
import time

import numpy as np

from agentic_jax.rewards.grading import Grader, Verdict

# What no comparison ends, and what the library chokes on.
PATHOLOGICAL = (
    "9^{9^{9^{9}}}",
    "9**9**9**9",
    "\\sqrt{" * 150 + "2" + "}" * 150,
    "\\int_0^1 x^{x^{x^{x}}} dx",
    "(" * 300 + "x" + ")" * 300,
    "x^{10^{10}} + (x + 1)^{99999}",
    "\\prod_{i=1}^{10^9} (x + i)",
    "\\frac{" * 120 + "1" + "}{2}" * 120,
    "10000000!",
    "{1 \\over 0}^{\\infty}",
)


def ordinary(rng: np.random.Generator) -> tuple[str, str, bool]:
    """A prediction, a gold answer and whether they are equal."""
    a, b = (int(n) for n in rng.integers(2, 400, size=2))
    equal = bool(rng.integers(2))
    c = b if equal else b + 1
    forms = (
        (str(a * b), f"{a * c:,}"),
        (f"\\frac{{{a}}}{{{b}}}", f"{a}/{c}"),
        (f"x + {b}", f"{c} + x"),
        (f"{a}\\sqrt{{{b}}}", f"\\sqrt{{{c}}} \\cdot {a}"),
        (f"({a}, {b})", f"\\left( {a}, {c} \\right)"),
        (f"x^2 - {b * b}", f"(x - {c})(x + {c})"),
        (f"[{a}, {a + b})", f"[{a}, {a + c})"),
    )
    return *forms[rng.integers(len(forms))], equal


async def grade(pairs: list[tuple[str, str]], *, workers: int) -> list[Verdict]:
    """The verdicts, in order."""
    grader = Grader(workers=workers)
    try:
        await grader.start()
        return list(await asyncio.gather(*(grader.verdict(*pair) for pair in pairs)))
    finally:
        grader.close()


def main() -> None:
    """Prints the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    pairs, wanted = [], []
    for i in range(arguments.answers):
        prediction, gold, equal = ordinary(rng)
        if i % 100 == 99:
            prediction = PATHOLOGICAL[i // 100 % len(PATHOLOGICAL)] + " " * (i % 7)
            gold, equal = f"x + {i}", None
        pairs.append((prediction, gold))
        wanted.append(equal)
    start = time.monotonic()
    verdicts = asyncio.run(grade(pairs, workers=arguments.workers))
    seconds = time.monotonic() - start
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = usage.ru_utime + usage.ru_stime
    ends = collections.Counter(verdict.failure or "compared" for verdict in verdicts)
    both = list(zip(verdicts, wanted, strict=True))
    wrong = sum(v.failure == "" and v.equal is not w for v, w in both if w is not None)
    failed = sum(v.failure != "" for v, w in both if w is not None)
    accepted = sum(v.equal for v, w in both if w is None)
    print(
        f"{len(verdicts):,} answers in {seconds:.1f} s, {cpu:.1f} s of CPU in"
        f" the workers, {dict(ends)}"
    )
    print(
        f"lost {len(pairs) - len(verdicts)}, wrong {wrong}, ordinary ones without a"
        f" verdict {failed}, pathological ones accepted {accepted}"
    )


if __name__ == "__main__":
    main()
