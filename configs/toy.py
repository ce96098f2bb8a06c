"""What the small word-problem configs share; not a recipe by itself."""

from collections.abc import Sequence

from ml_collections.config_dict import ConfigDict


def check_size(size: str, known: Sequence[str]) -> None:
    """Raises for a config variant that does not exist."""
    if size not in known:
        raise ValueError(f"config variant {size!r} does not exist; known: {known}")


def host_sections() -> ConfigDict:
    """Rollout, engine, evaluation and update sections for the toy word problems."""
    return ConfigDict(
        {
            "seed": 0,
            "num_steps": 1,
            "eval_tasks": {
                "name": "word_problems",
                "split": "eval",
                "count": 128,
                "seed": 0,
                "digits": [2, 2],
            },
            "chat": {"format": "hermes", "system": "", "list_tools": False},
            "tools": {"python": {"name": "python", "timeout": 10.0, "max_chars": 160}},
            "sandbox": {"name": "embedded", "workers": 2},
            "verifier": {"name": "math"},
            "rollout": {
                "max_turns": 4,
                "max_prompt_tokens": 32,
                "max_response_tokens": 80,
                "temperature": 1.0,
                "top_p": 1.0,
                "top_k": 0,
                "top_logprobs": 0,
                "concurrency": 128,
            },
            "engine": {
                "name": "jax",
                "rows": 128,
                "length": 112,
                "deterministic": True,
            },
            "eval": {
                "every": 0,
                "problems": 128,
                "samples": 4,
                "runs": 1,
                "temperature": 1.0,
                "top_p": 1.0,
                "top_k": 0,
                "benchmarks": {},
            },
            "optimizer": {
                "name": "adamw",
                "schedule": {
                    "name": "constant",
                    "learning_rate": 3e-4,
                    "warmup_steps": 4,
                },
                "b1": 0.9,
                "b2": 0.95,
                "eps": 1e-8,
                "weight_decay": 0.0,
                "clip_norm": 1.0,
            },
            "mesh": {"data": 1, "fsdp": 1, "tensor": 1, "sequence": 1, "expert": 1},
            "checkpoint": {"every": 10, "keep": 2, "best": ""},
            "batch": {
                "row_length": 112,
                "rows_per_microbatch": 4,
                "logprob_chunk": 56,
            },
        }
    )


def toy_model(*, seed: int) -> dict:
    """A random Qwen3 of 0.9 million parameters."""
    return {
        "name": "toy",
        "width": 128,
        "num_layers": 4,
        "vocab_size": 640,
        "seed": seed,
    }


def shrink(config: ConfigDict) -> None:
    """Cuts a config down to a random two-layer model and a few short rollouts."""
    config.model = {**toy_model(seed=0), "width": 64, "num_layers": 2}
    config.eval_tasks.count = config.eval.problems = 4
    config.eval.samples = 2
    config.rollout.max_response_tokens = 48
    config.rollout.concurrency = config.engine.rows = 8
    config.engine.length = config.batch.row_length = 80
    config.batch.rows_per_microbatch = 4
    config.checkpoint.every = 1
