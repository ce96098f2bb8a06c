import time

import pytest

from agentic_jax.monitor.clock import Clock


def test_a_step_is_its_phases_and_what_lies_between(monkeypatch):
    now = iter([0.0, 6.0, 7.0, 9.0, 10.0, 12.0, 16.0, 20.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    clock = Clock()
    clock.lap("rollout")
    clock.lap("pack")
    clock.lap("update")
    timing = clock.metrics(tokens=50)
    assert timing["time/rollout_s"] == 6.0 and timing["time/pack_s"] == 1.0
    assert timing["time/step_s"] == 10.0 and timing["time/tokens_per_s"] == 5.0
    # 6 of rollout and 2 of update; packing and the last second are the loop's own.
    assert timing["time/overhead_fraction"] == pytest.approx(0.2)
    clock.lap("log")  # What follows a step's metrics counts to the next one.
    clock.lap("rollout")
    timing = clock.metrics(tokens=0)
    assert timing["time/log_s"] == 3.0 and timing["time/rollout_s"] == 4.0
    assert timing["time/step_s"] == 10.0 and "time/update_s" not in timing
