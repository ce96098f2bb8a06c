import dataclasses

import jax
import pytest

from agentic_jax.models.config import LoraConfig
from agentic_jax.scale import utilization
from agentic_jax.scale.chips import PEAK_FLOPS_PER_S, TPUS
from agentic_jax.scale.flops import forward_flops, step_flops
from tests.scale.test_flops import TINY


def test_rates_are_those_of_the_trajectories_and_not_of_their_rows(monkeypatch):
    peak = 1e6
    monkeypatch.setattr(utilization, "peak_flops_per_s", lambda *_: peak)
    metrics = utilization.update_metrics(TINY, [3, 7], num_devices=2, seconds=4.0)
    # 2 operations x 204 weights x 2 layers and 4 x 10 of the head, for 10 tokens; half
    # of 9 + 49 pairs of 12 numbers in 2 products and 2 layers; three times all that.
    flops = 3 * (10 * (2 * 204 * 2 + 2 * 40) + 0.5 * 58 * 12 * 2 * 2 * 2)
    assert metrics["time/update_tokens_per_s"] == 2.5
    assert metrics["time/update_flops_per_s"] == pytest.approx(flops / 4)
    assert metrics["time/mfu_fraction"] == pytest.approx(flops / 4 / peak)
    assert "time/device_peak_mb" not in metrics  # A CPU does not tell.


def test_virtual_devices_share_what_is_measured_and_real_ones_add_up(monkeypatch):
    assert utilization.peak_flops_per_s("float32", 8) == (
        utilization.peak_flops_per_s("float32", 1)
    )
    assert utilization.peak_flops_per_s("float32", 1) > 1e9
    kind = jax.local_devices()[0].device_kind
    monkeypatch.setitem(PEAK_FLOPS_PER_S, kind, 5e12)
    assert utilization.peak_flops_per_s("float32", 8) == 8 * 5e12


def test_the_same_chip_has_the_same_peak_in_a_plan_and_in_a_run():
    names = {"v5e": "TPU v5 lite", "v5p": "TPU v5p", "v6e": "TPU v6 lite"}
    for version, kind in names.items():
        assert PEAK_FLOPS_PER_S[kind] == TPUS[version].flops_per_s


def test_frozen_weights_have_no_gradient_to_count():
    forward = forward_flops(TINY, [8])
    lora = LoraConfig(rank=2, alpha=4.0, targets=("q_proj",))
    adapted = dataclasses.replace(TINY, lora=lora)
    assert step_flops(forward, adapted) == pytest.approx(
        2 * (forward.layers + forward.head) + 3 * forward.attention
    )
