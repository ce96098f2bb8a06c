"""How published problem sets are laid out: one plain function each, row to Task.

A function takes (row, rng) and gives a Task, or None for a row that the set's protocol
leaves out. A task names its verifier in extra["verifier"]; read_dataset numbers a task
without an id. Of a row only what a verifier or a study needs is kept.
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentic_jax.data import programs
from agentic_jax.data.rows import Row, hub_rows, read_rows
from agentic_jax.data.tasks import answer_text, letter, tasks_of, user_messages
from agentic_jax.rewards.answers import extract_boxed, extract_tag
from agentic_jax.trajectory import Task

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Layout:
    """One published set.

    Attributes:
        make: (row's values, rng of the row) -> Task or None.
        hub: its name at Hugging Face; "" if it is only read from a file.
        config: the hub's configuration, None where there is but one.
        split: the hub's split.
        repeats: whether the set holds each problem many times over.
        limit: how many tasks its protocol takes, from the first; None for all.
    """

    make: Callable[[Values, np.random.Generator], Task | None]
    hub: str = ""
    config: str | None = None
    split: str = "train"
    repeats: bool = False
    limit: int | None = None


def read_dataset(
    name: str,
    *,
    path: str | pathlib.Path = "",
    split: str = "",
    seed: int = 0,
    system: str = "",
    instruction: str = "",
) -> list[Task]:
    """The tasks of a published set, from a file of its own layout or from the hub.

    Args:
        name: a key of LAYOUTS.
        path: .jsonl, .json, .csv or .parquet; "" reads from the hub.
        split: of the hub; "" is the layout's own.
        seed: of the order of choices, for sets that keep the right one first.
        system: system message put first; "" puts none.
        instruction: put after each problem on a line of its own.

    Raises:
        ValueError: unknown name, a set without a hub name, or a bad row, named by file
            and number.
        FileNotFoundError, ImportError, ConnectionError: see rows.read_rows, hub_rows.
    """
    if name not in LAYOUTS:
        raise ValueError(f"dataset {name!r} is none of {', '.join(LAYOUTS)}")
    layout = LAYOUTS[name]
    if not path and not layout.hub:
        raise ValueError(f"dataset {name!r} has no hub name: give a path")
    rows: Iterable[Row] = (
        read_rows(path)
        if path
        else hub_rows(layout.hub, config=layout.config, split=split or layout.split)
    )

    def make(row: Row) -> Task | None:
        task = layout.make(row.values, np.random.default_rng([seed, row.number]))
        if task is None:
            return None
        messages = [dict(message) for message in task.messages]
        if instruction:
            messages[-1]["content"] += f"\n{instruction}"
        if system:
            messages.insert(0, {"role": "system", "content": system})
        id = f"{name}-{task.id or row.number}"
        return dataclasses.replace(task, id=id, messages=tuple(messages))

    return tasks_of(rows, make, repeats=layout.repeats, limit=layout.limit)


def _plain_math(row: Values, rng: np.random.Generator) -> Task:
    """MATH-500, AIME, AMC and SVAMP: a problem and its final answer."""
    question = _first(row, "problem", "question", "Problem")
    answer = answer_text(_first(row, "answer", "Answer"))
    id = str(_first(row, "unique_id", "id", "ID", default=""))
    return _math(question, answer, id=id, **_kept(row, "subject", "level"))


def _gsm8k(row: Values, rng: np.random.Generator) -> Task:
    """The hub's answer is a solution that ends in "#### 18"; other files have "18"."""
    answer = answer_text(row["answer"]).rpartition("####")[2].strip()
    return _math(row["question"], answer.replace(",", ""))


def _dapo_math(row: Values, rng: np.random.Generator) -> Task:
    """Chat prompts that ask for an "Answer:" line; that request is taken off."""
    parts = row["prompt"][0]["content"].split("\n\n")
    if parts[0].startswith("Solve the following math problem step by step"):
        del parts[0]
    if parts and parts[-1].startswith("Remember to put your answer"):
        del parts[-1]
    gold = answer_text(row["reward_model"]["ground_truth"])
    return _math("\n\n".join(parts), gold, id=str(row["extra_info"]["index"]))


def _skywork(row: Values, rng: np.random.Generator) -> Task | None:
    """Math: a JSON list of answers, empty in a few rows. Code: a JSON object."""
    truth = row["reward_model"]["ground_truth"]
    gold = json.loads(truth) if truth.lstrip()[:1] in ("[", "{") else truth
    gold = gold[0] if isinstance(gold, list) and gold else gold
    info = row["extra_info"]
    question = row["prompt"][0]["content"]
    if not gold:
        return None
    if isinstance(gold, Mapping):
        task = programs.task(question, tests=programs.skywork_tests(gold))
    else:
        task = _math(question, answer_text(gold), **_kept(info, "model_difficulty"))
    return dataclasses.replace(task, id=f"{task.domain}-{info['index']}")


def _megascience(row: Values, rng: np.random.Generator) -> Task | None:
    """Open science questions; those without a short reference answer are left out."""
    if not row["reference_answer"]:
        return None
    answer = answer_text(row["reference_answer"])
    task = _math(row["question"], answer, **_kept(row, "subject"))
    return dataclasses.replace(task, domain="science")


def _gpqa(row: Values, rng: np.random.Generator) -> Task:
    """The right answer comes first in the file: the order is drawn."""
    choices = [row["Correct Answer"]]
    choices += [row[f"Incorrect Answer {i}"] for i in (1, 2, 3)]
    choices = [text.strip() for text in choices]
    order = rng.permutation(4)
    shown = [choices[i] for i in order]
    right = letter(int(np.argmin(order)), shown)
    return _choice(row["Question"], shown, right, **_kept(row, "Subdomain"))


def _mmlu(row: Values, rng: np.random.Generator) -> Task:
    right = letter(int(row["answer"]), row["choices"])
    subject = _first(row, "subject", "type")
    return _choice(row["question"], row["choices"], right, subject=subject)


def _short_answer(row: Values, rng: np.random.Generator) -> Task:
    """HotpotQA, 2Wiki, MuSiQue, Bamboogle: an answer, or a list, or aliases beside it.

    The titles of the passages that support the answer are kept where the row has them.
    """
    gold = _first(row, "golden_answers", "answer", "Answer")
    golds = list(gold) if isinstance(gold, list | tuple) else [gold]
    golds += row.get("answer_aliases") or row.get("answer_alias") or []
    extra: dict[str, Any] = {"answers": [answer_text(one) for one in golds]}
    if row.get("supporting_facts"):
        extra["supporting_titles"] = _titles(row["supporting_facts"])
    if row.get("paragraphs"):
        found = [p["title"] for p in row["paragraphs"] if p["is_supporting"]]
        extra["supporting_titles"] = list(dict.fromkeys(found))
    question = _first(row, "question", "Question")
    id = str(_first(row, "id", "_id", default=""))
    return _qa(question, extra["answers"][0], id=id, **extra)


def _hle(row: Values, rng: np.random.Generator) -> Task | None:
    """Humanity's Last Exam without the questions that show an image."""
    if row.get("image"):
        return None
    answer, id = answer_text(row["answer"]), str(row["id"])
    if row["answer_type"] == "multipleChoice":
        return _choice(row["question"], (), answer, id=id, **_kept(row, "category"))
    return _qa(row["question"], answer, id=id, **_kept(row, "category"))


def _gaia(row: Values, rng: np.random.Generator) -> Task | None:
    """GAIA without the questions that come with a file or with a hidden answer."""
    answer = answer_text(row["Final answer"])
    if row.get("file_name") or answer == "?":
        return None
    return _qa(row["Question"], answer, id=row["task_id"], **_kept(row, "Level"))


def _webwalker(row: Values, rng: np.random.Generator) -> Task:
    info = _first(row, "Info", "info", default={})
    question, answer = (_first(row, k, k.lower()) for k in ("Question", "Answer"))
    return _qa(question, answer_text(answer), **_kept(info, "Hop", "Difficulty_Level"))


def _s1k(row: Values, rng: np.random.Generator) -> Task:
    """The gold answer is the solution's box, or all of a solution without one."""
    answer = extract_boxed(row["solution"]) or answer_text(row["solution"])
    return _math(row["question"], answer, **_kept(row, "cot_type", "source_type"))


def _retool_sft(row: Values, rng: np.random.Generator) -> Task | None:
    """The problem inside ReTool's prompt; the answer is the box of its response."""
    prompt, response = (message["content"] for message in row["messages"][:2])
    asked = prompt.rpartition("*user question:*")[2]
    question = asked.partition("Remember to place the final answer")[0].strip()
    answer = extract_boxed(response)
    answer = answer.strip("' ") if answer else ""
    return _math(question, answer, response=response) if answer else None


def _tool_star_sft(row: Values, rng: np.random.Generator) -> Task | None:
    """The input is the problem, the answer tag or box of the output its answer."""
    said = extract_tag(row["output"], "answer") or ""
    answer = extract_boxed(said) or re.sub(r"^\\boxed|^[{ ]+|[} ]+$", "", said)
    if not answer:
        return None
    searched = "<search>" in row["output"]
    task = (_qa if searched else _math)(row["input"], answer, response=row["output"])
    return task


def _math(question: str, answer: str, *, id: str = "", **extra: Any) -> Task:
    extra = {"verifier": "math", **extra}
    return Task(id, user_messages(question), answer, "math", extra)


def _qa(question: str, answer: str, *, id: str = "", **extra: Any) -> Task:
    extra = {"verifier": "short_answer_f1", "answers": [answer], **extra}
    return Task(id, user_messages(question), answer, "qa", extra)


def _choice(
    question: str, choices: Iterable[str], answer: str, *, id: str = "", **extra: Any
) -> Task:
    extra = {"verifier": "choice", **extra}
    messages = user_messages(question, choices=list(choices))
    return Task(id, messages, answer, "science", extra)


def _titles(facts: Any) -> list[str]:
    """The hub has {"title": [...]}, the original file a list of [title, sentence]."""
    found = facts["title"] if isinstance(facts, Mapping) else [f[0] for f in facts]
    return list(dict.fromkeys(found))


def _first(row: Values, *keys: str, default: Any = None) -> Any:
    """The first of these fields that has a value."""
    for key in keys:
        if row.get(key) not in (None, "", []):
            return row[key]
    if default is None:
        names = " or ".join(map(repr, keys))
        raise ValueError(f"no {names}; the row has {', '.join(row)}")
    return default


def _kept(row: Values, *keys: str) -> dict[str, Any]:
    """Those fields that are there, under lower-case names."""
    return {key.lower(): row[key] for key in keys if row.get(key) is not None}


LAYOUTS = {
    "gsm8k": Layout(_gsm8k, "openai/gsm8k", "main"),
    "svamp": Layout(_plain_math, "ChilleD/SVAMP"),
    "math500": Layout(_plain_math, "HuggingFaceH4/MATH-500", split="test"),
    "aime24": Layout(_plain_math, "HuggingFaceH4/aime_2024"),
    "aime25": Layout(_plain_math, "math-ai/aime25", split="test"),
    "amc23": Layout(_plain_math, "math-ai/amc23", split="test"),
    "dapo_math_17k": Layout(
        _dapo_math, "BytedTsinghua-SIA/DAPO-Math-17k", repeats=True
    ),
    "skywork_or1": Layout(_skywork, "Skywork/Skywork-OR1-RL-Data", split="math"),
    "megascience": Layout(_megascience, "MegaScience/MegaScience"),
    "gpqa_diamond": Layout(_gpqa, "Idavidrein/gpqa", "gpqa_diamond"),
    "mmlu": Layout(_mmlu, "cais/mmlu", "all", "test"),
    "livecodebench": Layout(
        programs.livecodebench, "lighteval/code_generation_lite", "v6", "test"
    ),
    "leetcode": Layout(programs.leetcode, "newfacade/LeetCodeDataset"),
    "humaneval": Layout(programs.humaneval, "openai/openai_humaneval", split="test"),
    "mbpp": Layout(programs.mbpp, "google-research-datasets/mbpp", "full", "test"),
    "hotpotqa": Layout(_short_answer, "hotpotqa/hotpot_qa", "distractor", "validation"),
    "2wiki": Layout(
        _short_answer, "RUC-NLPIR/FlashRAG_datasets", "2wikimultihopqa", "dev"
    ),
    "musique": Layout(_short_answer, "RUC-NLPIR/FlashRAG_datasets", "musique", "dev"),
    "bamboogle": Layout(
        _short_answer, "RUC-NLPIR/FlashRAG_datasets", "bamboogle", "test"
    ),
    "hle": Layout(_hle, "cais/hle", split="test", limit=500),
    "gaia": Layout(_gaia, "gaia-benchmark/GAIA", "2023_all", "validation"),
    "webwalkerqa": Layout(_webwalker, "callanwu/WebWalkerQA", split="main"),
    "s1k": Layout(_s1k, "simplescaling/s1K"),
    "retool_sft": Layout(_retool_sft, "JoeYing/ReTool-SFT"),
    "tool_star_sft": Layout(_tool_star_sft, "dongguanting/Tool-Star-SFT-54K"),
}
