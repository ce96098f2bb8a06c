r"""Evaluation on mathematics, science and code, by the papers' protocols.

Sources: "Demystifying RL in Agentic Reasoning" (arXiv:2510.11701), Table 2 and A.2: 32
samples at temperature 1.0 and top-p 0.6; LiveCodeBench with 5 for its pass@5.
rStar2-Agent (arXiv:2508.20722), section 5.1: 16 samples. [ours] marks what neither
gives. Variants: paper (the first), rstar2.

    python -m launch.evaluate --config=configs/eval_math.py \
        --config.model.path=models/qwen3-4b-instruct-2507-sft \
        --modes=tools,self_contained --out=runs/eval/math.json
    python -m launch.evaluate --config=configs/eval_math.py:rstar2 \
        --config.model.path=models/rstar2 --out=runs/eval/rstar2.json

Not yet run at paper size: no accelerator was at hand. ":tiny" runs in the tests.
"""

from ml_collections.config_dict import ConfigDict

from configs import demystify_grpo_tcr, quickstart, rstar2, toy

MOST = 100_000  # Problems; every benchmark has fewer.


def get_config(size: str = "paper") -> ConfigDict:
    """The recipe of an evaluation at "paper", "rstar2" or "tiny"."""
    toy.check_size(size, ("paper", "rstar2", "tiny"))
    if size == "tiny":
        config = quickstart.get_config("tiny")
        config.eval.benchmarks = ConfigDict(
            {
                "products": {"tasks": dict(config.eval_tasks)},
                "short": {"tasks": {**config.eval_tasks, "digits": [1, 1]}}
                | {"samples": 1, "runs": 2},
            }
        )
        return config
    if size == "rstar2":
        config = rstar2.get_config()
        config.stages = []
        config.verifier = ConfigDict({"name": "by_task", "options": {}})
        config.rollout.max_turns = 10  # [ours]
        config.rollout.max_response_tokens = 12_288
        config.eval.update(problems=MOST, samples=16, temperature=1.0)  # [ours]: 1.0.
        names = ("math500", "aime24", "aime25", "gpqa_diamond")
    else:
        config = demystify_grpo_tcr.get_config()
        config.eval.problems = MOST
        names = ("aime24", "aime25", "gpqa_diamond", "livecodebench")
    config.eval.benchmarks = ConfigDict(
        {name: {"tasks": {"name": "dataset", "dataset": name}} for name in names}
    )
    if "livecodebench" in config.eval.benchmarks:
        config.eval.benchmarks.livecodebench.samples = 5
    return config
