"""Which problems are kept: one predicate a filter."""

import functools
import re
import zlib
from collections.abc import Callable, Sequence

from absl import logging

from agentic_jax.chat.template import Chat
from agentic_jax.chat.tokenizer import load_tokenizer
from agentic_jax.trajectory import Task

_INTEGER = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)", re.ASCII)


def keep_tasks(tasks: Sequence[Task], keep: Callable[..., bool]) -> list[Task]:
    """The tasks that pass, in order; how many do not is logged.

    Raises:
        ValueError: none is left.
    """
    kept = [task for task in tasks if keep(task)]
    name = getattr(keep, "func", keep).__name__
    logging.info("%s keeps %d of %d problems", name, len(kept), len(tasks))
    if not kept:
        raise ValueError(f"{name} keeps none of {len(tasks)} problems")
    return kept


def integer_answer(task: Task, *, max_magnitude: int) -> bool:
    """Whether the answer is an integer of at most this magnitude.

    Source: rStar2-Agent (arXiv:2508.20722), section 4.2, keeps integer answers and
    drops "excessively large" ones without a number.
    """
    answer = task.answer.strip().strip("$")
    if not _INTEGER.fullmatch(answer) or len(answer) > 4_000:
        return False
    return abs(int(answer.replace(",", ""))) <= max_magnitude


def fold(task: Task, *, folds: int, kept: Sequence[int]) -> bool:
    """Whether the task falls into one of these folds, by a hash of its id.

    Two sources with disjoint `kept` share no problem: training and held-out problems
    of one file.

    Args:
        task: with an id of its own.
        folds: into how many the problems are cut, about equally.
        kept: numbers in [0, folds).
    """
    return zlib.crc32(task.id.encode()) % folds in kept


def prompt_tokens(
    task: Task, *, tokenizer: str, max_prompt_tokens: int, reserve: int = 0
) -> bool:
    """Whether the rendered prompt has at most max_prompt_tokens - reserve tokens.

    Args:
        task: its messages are rendered with the tokenizer's chat template.
        tokenizer: a local Hugging Face directory.
        max_prompt_tokens: as rollout.max_prompt_tokens.
        reserve: tokens of what a run puts before the messages: the list of tools and
            the recipe's system message.
    """
    return len(_chat(tokenizer).render_prompt(task.messages)) <= (
        max_prompt_tokens - reserve
    )


@functools.cache
def _chat(directory: str) -> Chat:
    """The chat format of a model directory, loaded once."""
    return Chat(load_tokenizer(directory))


FILTERS = {
    "fold": fold,
    "integer_answer": integer_answer,
    "prompt_tokens": prompt_tokens,
}
