r"""Supervised start of the first paper: 3k trajectories whose calls were really run.

Source: "Demystifying RL in Agentic Reasoning" (arXiv:2510.11701), section 3.1, Table 1
and A.1: 5 epochs, batch 32, AdamW at 5e-5, at most 32,768 tokens. [ours] marks numbers
that it does not give. Variants:

    paper        Qwen3-4B-Instruct-2507 on real trajectories
    7b           Qwen2.5-7B-Instruct on the same
    stitched     Qwen3-4B on calls put into finished solutions, the paper's comparison
    7b_stitched  Qwen2.5-7B on them
    long_cot     Qwen3-4B-Thinking-2507 on real trajectories, section 5.3

    python -m launch.curate sft --config=configs/demystify_grpo_tcr.py \
        --out=data/demystify_sft --config.model.path=models/teacher
    python -m launch.curate stitched --config=configs/demystify_grpo_tcr.py \
        --out=data/demystify_stitched
    python -m launch.train_sft --config=configs/demystify_sft.py --workdir=/runs/sft

Real trajectories are those of an engine as the teacher; [ours], as the paper's teacher
is another. Not yet run at paper size: no accelerator was at hand. ":tiny" runs in the
tests, on trajectories that launch.teacher makes.
"""

from ml_collections.config_dict import ConfigDict

from configs import demystify_grpo_tcr, quickstart_sft, toy

MODELS = {
    "paper": "models/qwen3-4b-instruct-2507",
    "7b": "models/qwen2.5-7b-instruct",
    "stitched": "models/qwen3-4b-instruct-2507",
    "7b_stitched": "models/qwen2.5-7b-instruct",
    "long_cot": "models/qwen3-4b-thinking-2507",
}


def get_config(size: str = "paper") -> ConfigDict:
    """The recipe in a variant of MODELS or at size "tiny"."""
    toy.check_size(size, (*MODELS, "tiny"))
    if size == "tiny":
        return quickstart_sft.get_config("tiny")
    config = quickstart_sft.get_config("small")
    demystify_grpo_tcr.on_accelerators(
        config,
        path=MODELS[size],
        max_prompt_tokens=2_560,  # [ours]
        max_response_tokens=30_208,  # 32,768 with the prompt.
    )
    config.batch.rows_per_microbatch = 8  # [ours]
    kind = "stitched" if size.endswith("stitched") else "sft"
    config.trajectories = f"data/demystify_{kind}/trajectories.jsonl"
    config.trajectories_per_step = 32
    config.num_steps = 469  # 5 epochs of 3,000.
    config.stop_at_score = 1.0  # [ours]
    config.eval.every = 0  # [ours]
    config.optimizer.schedule = ConfigDict(
        {"name": "constant", "learning_rate": 5e-5, "warmup_steps": 10}  # Warm-up ours.
    )
    config.checkpoint.every = 94  # [ours] An epoch.
    return config
