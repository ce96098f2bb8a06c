r"""What the studies share: a policy of 0.1 million parameters, and runs of 12 steps.

Their start is configs/studies/start.py, one for each seed. Each file here is one study;
its variants are the arms, the first one is the baseline:

    python -m launch.sweep --config=configs/studies/FILE.py --variants=A,B --out=DIR

docs/results.md has the commands and what came out.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections.config_dict import ConfigDict

from configs import quickstart, toy

START = "runs/studies/start/second/seed_{seed}/model"


def rl_config(*, tiny: bool = False) -> ConfigDict:
    """GRPO with token ratios, a symmetric clip range and no bonus, penalty or KL.

    Args:
        tiny: two steps from random weights, for the tests.
    """
    config = quickstart.get_config("tiny" if tiny else "small")
    config.reward = {"name": "outcome_with_tool_bonus", "reading": "flat"}
    config.surrogate = {"name": "clipped", "eps_low": 0.2, "eps_high": 0.2}
    config.tools = {"python": {"name": "configs.studies.tools:calculator"}}
    config.sandbox = {"name": "none"}
    if tiny:
        return config
    config.num_steps = 12
    config.prompts_per_step = 8
    config.model.path = START
    config.batch.updates_per_step = 4  # So that there is something to clip.
    resize(config)
    config.optimizer.schedule.decay_steps = 48
    config.eval.update({"every": 12, "problems": 128, "samples": 2})
    config.checkpoint.update({"every": 12, "keep": 1})
    config.log.groups_per_step = 1
    return config


def resize(config: ConfigDict) -> None:
    """Room for two calls of which one failed, and shapes that suit one core."""
    config.rollout.max_response_tokens = 96
    config.rollout.concurrency = config.engine.rows = 64
    config.engine.length = config.batch.row_length = 128
    config.batch.logprob_chunk = 64
    config.batch.rows_per_microbatch = 8


def arm(variant: str, arms: Mapping[str, Mapping[str, Any]]) -> ConfigDict:
    """The base with the values of one arm; "tiny" is the last arm, cut down.

    Args:
        variant: a key of arms, or "tiny".
        arms: name to {section: value}.

    Raises:
        ValueError: another variant.
    """
    toy.check_size(variant, (*arms, "tiny"))
    config = rl_config(tiny=variant == "tiny")
    chosen: Sequence[Mapping[str, Any]] = list(arms.values())
    values = chosen[-1] if variant == "tiny" else arms[variant]
    with config.ignore_type():
        for key, value in values.items():
            config[key] = ConfigDict(value) if isinstance(value, Mapping) else value
    return config
