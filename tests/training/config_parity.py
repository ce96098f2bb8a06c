"""The tiny quickstart with a reward that always has variance."""

from configs import quickstart


def get_config(size="tiny"):
    """At size "wide" its heads divide over two devices, and rounding stays small."""
    config = quickstart.get_config("tiny")
    config.reward = {"name": "tests.fakes:parity_reward"}
    if size == "wide":
        config.model.update(width=128, num_layers=1)
        config.optimizer.eps = 1e-3  # Or Adam would blow rounding up.
    return config
