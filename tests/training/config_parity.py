"""The tiny quickstart with a reward that always has variance."""

from configs import quickstart


def get_config():
    config = quickstart.get_config("tiny")
    config.reward = {"name": "tests.fakes:parity_reward"}
    return config
