"""Procedural arithmetic word problems, and a scripted teacher that solves them.

Products of numbers with several digits: a small policy cannot work them out, a tool
can.
"""

import json
import zlib
from collections.abc import Sequence

import numpy as np

from agentic_jax.trajectory import Task

_STORIES = (
    "A box holds {a} {thing}. How many {thing} are in {b} boxes?",
    "There are {a} rows with {b} {thing} in each row. How many {thing} are there?",
    "{name} buys {b} packs of {a} {thing}. How many {thing} is that?",
    "{name} packs {a} {thing} a day. How many {thing} in {b} days?",
    "Each of {a} shops sells {b} {thing}. How many {thing} are sold?",
    "One bag costs {a} coins. How many coins do {b} bags cost?",
    "A truck carries {a} {thing}. How many {thing} do {b} trucks carry?",
    "{name} reads {a} pages a week. How many pages in {b} weeks?",
)
_THINGS = ("pens", "eggs", "cups", "nuts", "books", "coins", "cards", "stamps")
_NAMES = ("Ana", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Ida")
TEACHER_MODES = ("tool", "direct", "recovery")
_MISTAKES = {  # What the teacher gets wrong, and what Python says to it.
    "prin({a}*{b})": (
        'Traceback (most recent call last):\n  File "main.py", line 1, in <module>\n'
        "    prin({a}*{b})\n    ^^^^\nNameError: name 'prin' is not defined"
    ),
    "print({a}*{b}": (
        '  File "main.py", line 1\n    print({a}*{b}\n         ^\n'
        "SyntaxError: '(' was never closed"
    ),
}


def word_problems(
    *, split: str, count: int, seed: int, digits: Sequence[int]
) -> list[Task]:
    """`count` problems whose factors never occur, in that order, in the other split.

    Args:
        split: "train" or "eval"; one factor pair in five belongs to "eval".
        count: number of problems; factor pairs may repeat in different stories.
        seed: of the draw.
        digits: of the two factors, such as (2, 3).

    Raises:
        ValueError: another split.
    """
    if split not in ("train", "eval"):
        raise ValueError(f"split is 'train' or 'eval', not {split!r}")
    rng = np.random.default_rng([seed, zlib.crc32(split.encode())])
    tasks: list[Task] = []
    while len(tasks) < count:
        a, b = (int(rng.integers(10 ** (n - 1) + 1, 10**n)) for n in digits)
        if (zlib.crc32(f"{a}*{b}".encode()) % 5 == 0) != (split == "eval"):
            continue
        text = rng.choice(_STORIES).format(
            a=a, b=b, thing=rng.choice(_THINGS), name=rng.choice(_NAMES)
        )
        tasks.append(
            Task(
                id=f"word-{split}-{seed}-{len(tasks)}",
                messages=({"role": "user", "content": text},),
                answer=str(a * b),
                domain="arithmetic",
                extra={"factors": [a, b]},
            )
        )
    return tasks


def teacher_turns(task: Task, mode: str, rng: np.random.Generator) -> list[str]:
    """What the teacher writes, turn by turn, without the end-of-turn token.

    Args:
        task: made by word_problems.
        mode: "tool" calls Python and copies its result, "direct" answers at once,
            "recovery" makes a call that fails, then the right one.
        rng: picks the mistake of "recovery".

    Raises:
        ValueError: another mode.
    """
    a, b = task.extra["factors"]
    answer = f"\\boxed{{{task.answer}}}"
    call = python_call(f"print({a}*{b})")
    mistake = str(rng.choice(list(_MISTAKES))).format(a=a, b=b)
    turns = {
        "tool": [call, answer],
        "direct": [answer],
        "recovery": [python_call(mistake), call, answer],
    }
    if mode not in turns:
        raise ValueError(f"mode is one of {', '.join(turns)}, not {mode!r}")
    return turns[mode]


def written_solution(task: Task) -> str:
    """How the teacher works a problem of word_problems out by itself, without tools."""
    a, b = task.extra["factors"]
    return f"{a} * {b} = {task.answer}\n\\boxed{{{task.answer}}}"


def typical_texts(count: int) -> list[str]:
    """What stands in such conversations, for learning a tokenizer's merges."""
    rng = np.random.default_rng(0)
    texts = []
    for i, task in enumerate(
        word_problems(split="train", count=count, seed=0, digits=(2, 2))
    ):
        a, b = task.extra["factors"]
        mode = TEACHER_MODES[i % len(TEACHER_MODES)]
        texts.append(f"user\n{task.messages[0]['content']}")
        texts += [f"assistant\n{turn}" for turn in teacher_turns(task, mode, rng)]
        texts += [said.format(a=a, b=b) for said in _MISTAKES.values()]
    return texts


def python_call(code: str) -> str:
    """A Hermes call of the Python tool."""
    call = json.dumps({"name": "python", "arguments": {"code": code}})
    return f"<tool_call>\n{call}\n</tool_call>"
