r"""Evaluation on knowledge and deep search, by TEPO's protocol.

Source: TEPO (arXiv:2602.02050), sections 4.1 and 4.3, appendix B: temperature 0.2,
top-p 0.95, top-k 20, five runs with mean and deviation, answers graded by a language
model (theirs is GPT-4o-mini), HLE cut to its first 500 questions. The judge is any
server with OpenAI's chat route; its address is ours. Variants:

    paper    AIME, HotpotQA, 2Wiki and MuSiQue on Qwen2.5-7B: Tables 2 and 3
    search   GAIA, WebWalkerQA and HLE on Qwen3-8B: Table 4
    f1       as paper, but short answers by F1, without a judge
    offline  HotpotQA's file and its passages in ../shared/data, without any server

    python -m launch.serve_search --passages=data/wiki18.jsonl --port=8090
    python -m launch.evaluate --config=configs/eval_search.py \
        --config.model.path=/runs/dense/model --out=runs/eval/search.json

Not yet run at paper size: no accelerator was at hand. ":tiny" runs in the tests.
"""

from ml_collections.config_dict import ConfigDict

from configs import search, tepo_grpo, toy

VARIANTS = ("paper", "search", "f1", "offline", "tiny")
KNOWLEDGE = ("hotpotqa", "2wiki", "musique")
DEEP_SEARCH = ("gaia", "webwalkerqa", "hle")
JUDGE = {
    "name": "judge",
    "url": "http://127.0.0.1:30000",
    "model": "judge",
    "extract": "answer_tag",
    "timeout": 60.0,
    "max_tokens": 512,
}
PROTOCOL = {"samples": 1, "runs": 5, "temperature": 0.2, "top_p": 0.95, "top_k": 20}


def get_config(size: str = "paper") -> ConfigDict:
    """The recipe of an evaluation in one of VARIANTS."""
    toy.check_size(size, VARIANTS)
    if size in ("offline", "tiny"):
        config = search.get_config("tiny" if size == "tiny" else "hotpotqa")
        tasks = dict(config.eval_tasks if size == "tiny" else config.eval_tasks.tasks)
        config.eval.benchmarks = ConfigDict({"questions": {"tasks": tasks}})
        config.eval.update(PROTOCOL)
        config.eval.runs = 2 if size == "tiny" else 5
        return config
    config = tepo_grpo.get_config("search" if size == "search" else "paper")
    math = {"name": "math", "extract": "answer_tag"}
    names = DEEP_SEARCH if size == "search" else KNOWLEDGE
    benchmarks = {name: {"tasks": _dataset(name)} for name in names}
    if size != "search":
        for name in ("aime24", "aime25"):
            benchmarks[name] = {"tasks": _dataset(name), "verifier": math}
    config.eval.update(PROTOCOL)
    config.eval.problems = 100_000  # Every benchmark has fewer.
    config.eval.benchmarks = ConfigDict(benchmarks)
    if size != "f1":
        config.verifier = ConfigDict(JUDGE)
    return config


def _dataset(name: str) -> dict[str, str]:
    return {"name": "dataset", "dataset": name}
