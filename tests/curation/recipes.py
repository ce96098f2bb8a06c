"""Recipes and options for curation without a sandbox or a trained model."""

import dataclasses
import functools

from agentic_jax.recipe import build_rl
from configs import quickstart
from configs.curation import default

PLAYER = "tests.curation.players:counting_player"


def recipe(problems=6, rollout=None, **changes):
    config = quickstart.get_config("tiny")
    config.tools = {}
    config.sandbox = {"name": "none"}
    config.verifier = {"name": "math", "equality": "strict"}
    config.tasks.count = problems
    config.rollout.update(rollout or {})
    for key, value in changes.items():
        config[key] = value
    return dataclasses.replace(build_rl(config), model=_model)


@functools.cache
def _model():
    return build_rl(quickstart.get_config("tiny")).model()


def options(command, **changes):
    return {**default.get_config()[command].to_dict(), **changes}


def player(**how):
    return {"name": PLAYER, **how}
