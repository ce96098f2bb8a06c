r"""rStar2-Agent-14B: supervised start, and GRPO-RoC in three stages.

Source: rStar2-Agent (arXiv:2508.20722), section 4. 32 rollouts kept to 16, batch 128,
no KL, no entropy term, answer-only reward; 8K of response for 300 steps, 12K for 85,
then 12K on the harder problems for 125. [code] marks a number of the released script,
[ours] one that neither gives. Variants:

    paper        RL of Qwen3-14B, all three stages: Figure 8, section 5.2
    grpo         the same without resampling: Figure 9
    qwen2.5_32b  stages 1 and 2 of Qwen2.5-32B: Table 6
    sft          the supervised start before it: section 4.1, Table 1

    python -m launch.train_sft --config=configs/rstar2.py:sft --workdir=/runs/rstar2_sft
    python -m launch.train_rl --config=configs/rstar2.py --workdir=/runs/rstar2

Stage 3 needs the problems that the policy of stage 2 does not solve 8 times of 8. Run
stages 1 and 2 with --config.num_steps=385, then

    python -m launch.curate rl --config=configs/rstar2.py --out=data/rstar2_stage3 \
        --config.model.path=/runs/rstar2/model

which drops those never solved too [ours], and go on with the second command above. Not
yet run at paper size: no accelerator was at hand. ":tiny" runs in the tests.
"""

from ml_collections.config_dict import ConfigDict

from configs import quickstart, quickstart_sft, toy
from configs.demystify_grpo_tcr import on_accelerators

VARIANTS = ("paper", "grpo", "qwen2.5_32b", "sft", "tiny")
FIELDS = {"question": "question", "answer": "answer"}


def get_config(size: str = "paper") -> ConfigDict:
    """The recipe in one of VARIANTS; "sft" is one of train_sft."""
    toy.check_size(size, VARIANTS)
    if size == "sft":
        return supervised()
    tiny = size == "tiny"
    config = quickstart.get_config("tiny" if tiny else "small")
    config.reward = ConfigDict({"name": "outcome"})
    config.select = ConfigDict(
        {"name": "resample_on_correct", "keep": 2 if tiny else 16, "mode": "paper"}
    )
    if tiny:  # Of two that are kept, one may be right and one wrong.
        config.select.update(min_positive=1, min_negative=1)
    config.surrogate = ConfigDict({"name": "clipped", "eps_low": 0.2, "eps_high": 0.28})
    config.stages = stages(tiny=tiny)
    if not tiny:
        at_paper_size(config)
    if size == "grpo":
        config.group_size = 16  # [ours] As many as the other trains on.
        config.select = ConfigDict({"name": "drop_uniform"})
    if size == "qwen2.5_32b":
        config.model.path = "models/qwen2.5-32b-sft"
        config.stages = config.stages[:1]
        config.num_steps = 385
    return config


def at_paper_size(config: ConfigDict) -> None:
    """What the paper states of data, lengths and optimizer, set in place."""
    on_accelerators(
        config,
        path="models/qwen3-14b-base-sft",
        max_prompt_tokens=2_048,
        max_response_tokens=12_288,  # Rows must hold those of the last stage.
    )
    config.rollout.max_response_tokens = 8_192
    config.num_steps = 510
    config.prompts_per_step = 128
    config.group_size = 32
    config.batch.updates_per_step = 1  # [ours]
    config.tasks = ConfigDict(  # Section 4.2: integer answers, none too large.
        {
            "name": "filtered",
            "tasks": {"name": "jsonl", "path": "data/rstar2_42k.jsonl"}
            | {"fields": FIELDS},
            "filters": {
                "integers": {"name": "integer_answer", "max_magnitude": 10**9}  # [ours]
            },
        }
    )
    config.eval_tasks = ConfigDict({"name": "dataset", "dataset": "aime24"})
    config.chat.system = (  # [ours]
        "Think inside <reason> tags, call python where it helps, and end with <answer>"
        "\\boxed{your answer}</answer>."
    )
    config.tools.python.update(timeout=4.0, max_chars=4_000)  # [code], [ours]
    config.rollout.max_turns = 5  # [code]
    config.optimizer.schedule = ConfigDict(
        {"name": "constant", "learning_rate": 1e-6, "warmup_steps": 20}
    )
    config.eval.update(every=25, problems=30, samples=16)  # every: [ours]


def stages(*, tiny: bool) -> list[dict]:
    """The stages after the first: section 4.3."""
    if tiny:
        return [{"after": {"step": 1}, "set": {"rollout.max_response_tokens": 32}}]
    hard = {
        "name": "jsonl",
        "path": "data/rstar2_stage3/problems.jsonl",
        "fields": {key: key for key in ("id", "messages", "answer", "domain")},
    }
    return [
        {"after": {"step": 300}, "set": {"rollout.max_response_tokens": 12_288}},
        {"after": {"step": 385}, "set": {"tasks": hard}},
    ]


def supervised() -> ConfigDict:
    """The non-reasoning start of section 4.1; the paper gives no numbers: [ours]."""
    config = quickstart_sft.get_config("small")
    on_accelerators(
        config,
        path="models/qwen3-14b-base",
        max_prompt_tokens=4_096,
        max_response_tokens=4_096,
    )
    config.trajectories = "data/rstar2_sft/trajectories.jsonl"
    config.trajectories_per_step = 128
    config.num_steps = 3_000
    config.eval.every = 0
    config.optimizer.schedule = ConfigDict(
        {
            "name": "cosine",
            "learning_rate": 5e-6,
            "warmup_steps": 100,
            "decay_steps": 3_000,
            "end_fraction": 0.1,
        }
    )
    config.checkpoint.every = 500
    return config
