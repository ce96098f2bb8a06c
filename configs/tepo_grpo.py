r"""GRPO as the TEPO paper trains it: the baseline, and what its other methods share.

Source: TEPO (arXiv:2602.02050), section 4 and appendix B.2: 8 rollouts, batch 128,
mini-batch 16, 20K tokens of context, no KL, tool results out of the loss; evaluation at
temperature 0.2, top-p 0.95, top-k 20. It trains with verl and names no clip range,
learning rate or aggregation: 0.2 on both sides and the token mean are verl's own
[code], the rest is [ours]. Variants:

    paper   reasoning, Tables 2 and 3: Qwen2.5-7B, 10K problems of Tool-Star, 2 epochs
    search  deep search, Table 4: Qwen3-8B, 1K problems, 5 epochs

    python -m launch.serve_search --passages=data/wiki18.jsonl --port=8090
    python -m launch.train_rl --config=configs/tepo_grpo.py --workdir=/runs/tepo_grpo
    python -m launch.train_rl --config=configs/tepo_grpo.py:search \
        --workdir=/runs/tepo_grpo_search

The policies start from SFT on 54K trajectories of Tool-Star (layout "tool_star_sft").
Not yet run at paper size: no accelerator was at hand. ":tiny" runs in the tests.
"""

from ml_collections.config_dict import ConfigDict

from configs import quickstart, toy
from configs.demystify_grpo_tcr import on_accelerators

VARIANTS = ("paper", "search", "tiny")
SYSTEM = (
    "Solve the problem. You may call python to compute and search to look things up. "
    "Put the final answer between <answer> and </answer>."
)


def get_config(size: str = "paper") -> ConfigDict:
    """The recipe in one of VARIANTS."""
    toy.check_size(size, VARIANTS)
    tiny = size == "tiny"
    config = quickstart.get_config("tiny" if tiny else "small")
    config.reward = ConfigDict({"name": "outcome"})
    config.surrogate = ConfigDict({"name": "clipped", "eps_low": 0.2, "eps_high": 0.2})
    if not tiny:
        at_paper_size(config)
    if size == "search":
        config.model.path = "models/qwen3-8b-tool-star-sft"
        config.num_steps = 39  # 5 epochs of 1,000.
        config.tasks.path = "data/deep_search_rl_1k.jsonl"
        config.eval_tasks = ConfigDict({"name": "dataset", "dataset": "gaia"})
    return config


def at_paper_size(config: ConfigDict) -> None:
    """What the paper states of data, lengths and evaluation, set in place."""
    on_accelerators(
        config,
        path="models/qwen2.5-7b-tool-star-sft",
        max_prompt_tokens=2_048,  # [ours]
        max_response_tokens=18_432,  # 20K of context with the prompt.
    )
    config.num_steps = 156  # 2 epochs of 10,000.
    config.prompts_per_step = 128
    config.group_size = 8
    config.batch.updates_per_step = 8  # Mini-batches of 16 prompts.
    config.tasks = ConfigDict(
        {
            "name": "jsonl",
            "path": "data/tool_star_rl_10k.jsonl",
            "fields": {"question": "question", "answer": "answer"},
            "domain": "qa",
        }
    )
    config.eval_tasks = ConfigDict({"name": "dataset", "dataset": "hotpotqa"})
    config.verifier = ConfigDict({"name": "short_answer_f1", "extract": "answer_tag"})
    config.chat.system = SYSTEM  # [ours]
    config.tools = tools()
    config.rollout.max_turns = 10  # [ours]
    config.optimizer.schedule = ConfigDict(
        {"name": "constant", "learning_rate": 1e-6, "warmup_steps": 1}  # [ours]
    )
    config.eval.update(  # every, problems: [ours]
        every=10, problems=100, samples=1, temperature=0.2, top_p=0.95, top_k=20
    )


def tools() -> ConfigDict:
    """Python, and wiki-18 by Search-R1's protocol: section 4.2; options are [ours]."""
    return ConfigDict(
        {
            "python": {"name": "python", "timeout": 10.0, "max_chars": 2_000},
            "search": {
                "name": "retriever",
                "url": "http://127.0.0.1:8090/retrieve",
                "k": 3,
                "max_chars": 4_000,
                "timeout": 30.0,
            },
        }
    )
