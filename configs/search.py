r"""GRPO on questions whose answers lie in passages, with a BM25 index in the process.

The setup of Search-R1 (arXiv:2503.09516) and of the knowledge tasks of TEPO
(arXiv:2602.02050, section 4.1), small enough for one machine: the index needs no
server. All numbers are [ours]. Variants:

    hotpotqa  HotpotQA's questions over a file of passages; both lie in ../shared/data,
              or set the paths in here
    tiny      generated questions and passages, from agentic_jax.data.lookups

    python -m launch.train_rl --config=configs/search.py --workdir=runs/search
    python -m launch.train_rl --config=configs/search.py:tiny --workdir=runs/search_tiny

tool/supporting_recall says which share of the passages that hold the answer's facts the
policy was shown. Measured without a model, on the 100 questions of the file: the whole
question as the only query shows 0.74 of them with k = 5 (0.61 with 3, 0.88 with 10).
"hotpotqa" was not yet trained: no accelerator was at hand. ":tiny" runs in the tests.
"""

from collections.abc import Sequence

from ml_collections.config_dict import ConfigDict

from configs import quickstart, toy

QUESTIONS = "../shared/data/hotpotqa_distractor100.jsonl"
PASSAGES = "../shared/data/wiki_passages.jsonl"


def get_config(size: str = "hotpotqa") -> ConfigDict:
    """The recipe at "hotpotqa" or "tiny"."""
    toy.check_size(size, ("hotpotqa", "tiny"))
    tiny = size == "tiny"
    config = quickstart.get_config("tiny" if tiny else "small")
    config.sandbox = ConfigDict({"name": "none"})
    config.verifier = ConfigDict({"name": "short_answer_f1", "extract": "answer_tag"})
    config.reward = ConfigDict({"name": "outcome"})
    if tiny:
        lookups = {"name": "agentic_jax.data.lookups:lookups", "seed": 0, "count": 4}
        config.tasks = ConfigDict({**lookups, "split": "train"})
        config.eval_tasks = ConfigDict({**lookups, "split": "eval"})
        search = {"name": "agentic_jax.data.lookups:lookup_search", "seed": 0, "k": 2}
        # The prompts are longer than the quickstart's, the whole is not.
        config.rollout.update(max_prompt_tokens=48, max_response_tokens=32)
    else:
        _at_full_size(config)
        search = {"name": "search", "path": PASSAGES, "k": 5}
    search |= {"max_chars": 120 if tiny else 2_000, "timeout": 10.0}
    config.tools = ConfigDict({"search": search})
    return config


def _at_full_size(config: ConfigDict) -> None:
    """Model, data and lengths, set in place."""
    config.model.path = "models/qwen2.5-0.5b-instruct"
    config.tasks = questions(kept=(0, 1, 2))
    config.eval_tasks = questions(kept=(3,))
    config.chat.update(
        list_tools=True,
        system="Answer the question in a few words between <answer> and </answer>. You "
        "may call search as often as you need.",
    )
    config.num_steps = 100
    config.rollout.update(
        max_turns=5, max_prompt_tokens=512, max_response_tokens=3_584, concurrency=64
    )
    config.engine.update(rows=64, length=4_096, deterministic=False)
    config.batch.update(row_length=4_096, logprob_chunk=512)
    config.eval.update(every=20, problems=100, samples=1)
    config.optimizer.schedule = ConfigDict(
        {"name": "constant", "learning_rate": 1e-6, "warmup_steps": 4}
    )


def questions(*, kept: Sequence[int]) -> ConfigDict:
    """HotpotQA's questions in these of four folds."""
    return ConfigDict(
        {
            "name": "filtered",
            "tasks": {"name": "dataset", "dataset": "hotpotqa", "path": QUESTIONS},
            "filters": {"fold": {"name": "fold", "folds": 4, "kept": kept}},
        }
    )
