r"""GRPO-TCR on Qwen3-4B: token-level loss, clip higher, tool and overlong rewards.

Source: "Demystifying RL in Agentic Reasoning" (arXiv:2510.11701), section 2.2 and A.1.
[code] marks a number that only the authors' released script gives, [ours] one that
neither gives.

    python -m launch.train_rl --config=configs/demystify_grpo_tcr.py --workdir=/runs/tcr
    python -m launch.train_rl --config=configs/demystify_grpo_tcr.py:tiny \
        --workdir=runs/tcr_tiny

Not yet run at paper size: no accelerator was at hand. ":tiny" runs in the tests.
"""

from ml_collections.config_dict import ConfigDict

from configs import quickstart, toy


def get_config(size: str = "paper") -> ConfigDict:
    """The recipe at size "paper" or "tiny"."""
    toy.check_size(size, ("paper", "tiny"))
    tiny = size == "tiny"
    config = quickstart.get_config("tiny" if tiny else "small")
    config.surrogate = {
        "name": "dual_clipped",
        "eps_low": 0.2,
        "eps_high": 0.28,  # DemyAgent-4B has 0.315; the sweep 0.28, 0.315 and 0.35.
        "cap": 10.0,  # [code]
    }
    return config if tiny else at_paper_size(config)


def at_paper_size(config: ConfigDict) -> ConfigDict:
    """What the paper states of data, lengths and optimizer, set in place."""
    config.num_steps = 1_400  # 3 epochs of 30k problems.
    config.prompts_per_step = 64
    config.group_size = 16  # [code]
    config.model = {
        "name": "directory",
        "path": "models/qwen3-4b-instruct-2507-sft",
        "dtype": "bfloat16",  # [ours]
        "layer_loop": "scan",  # [ours]
        "remat": "full",  # [ours]
        "attention": "splash",  # [ours] For TPUs; "cudnn" on a GPU.
    }
    fields = {"question": "question", "answer": "answer"}
    config.tasks = {"name": "jsonl", "path": "data/rl_30k.jsonl", "fields": fields}
    config.eval_tasks = {"name": "jsonl", "path": "data/aime24.jsonl", "fields": fields}
    config.chat.list_tools = True
    config.tools.python.update(timeout=30.0, max_chars=256)  # [code]
    config.sandbox.workers = 64  # [ours]
    config.rollout.update(
        max_turns=16,  # [code]
        max_prompt_tokens=2_560,  # [code]
        max_response_tokens=16_384,  # [code] has 20,480.
        concurrency=256,  # [ours]
    )
    config.engine.update(  # [ours]
        rows=256, length=18_944, deterministic=False
    )
    config.reward.update(
        max_bonus_calls=16, max_tokens=16_384, buffer_tokens=4_096
    )  # L_cache is [code].
    config.batch.update(
        updates_per_step=4,  # [code]
        row_length=18_944,
        rows_per_microbatch=16,  # [ours]
        logprob_chunk=512,  # [ours]
    )
    config.optimizer.schedule = {
        "name": "constant",
        "learning_rate": 1e-6,  # [code]
        "warmup_steps": 1,  # [ours]
    }
    config.optimizer.clip_norm = 1.0  # [code]
    config.eval.update(every=50, problems=30, samples=32, top_p=0.6)
    config.mesh = {"data": 1, "fsdp": -1, "tensor": 1, "sequence": 1, "expert": 1}
    config.checkpoint.update(every=20, keep=2)  # [ours]
    return config
