import dataclasses
import functools
import json
import os
import subprocess
import sys

import jax
import pytest

from agentic_jax.models.config import LoraConfig
from agentic_jax.models.shapes import SHAPES
from agentic_jax.recipe import build_rl
from agentic_jax.scale import report
from agentic_jax.scale.chips import Chip, Topology, parse_topology
from agentic_jax.scale.plan import Program, make_plan
from agentic_jax.sources import MODELS, model_config
from configs import demystify_grpo_t, quickstart

SMALL = dataclasses.replace(
    SHAPES["qwen3_4b"], vocab_size=640, width=64, num_layers=2, mlp_width=96
)
FAST = {"xla_backend_optimization_level": 0}  # Compiles in half the time.


def small_config():
    config = quickstart.get_config("tiny")
    config.batch.rows_per_microbatch = 8
    config.mesh.update(data=1, fsdp=-1)
    return config


@functools.cache
def small_plan():
    topology = parse_topology("cpu:8")
    recipe = build_rl(small_config())
    return make_plan(recipe, SMALL, topology, jax.devices(), compiler_options=FAST)


def test_every_device_holds_its_share_of_the_state():
    # 640 x 64 + 2 x (2 x 64 x 40 x 128 + 3 x 64 x 96) = 1,388,544 weights of 4 bytes
    # are cut over 8 devices; norms of 2 x (2 x 64 + 2 x 128) + 64 are on each.
    weights = 1_388_544 * 4 / 8 + 832 * 4
    held = small_plan().held
    assert held["weights"] == held["gradients"] == weights
    assert held["optimizer"] == 2 * weights + 2 * 4  # Two moments and two counters.


def test_peak_counts_what_the_running_function_does_not_see():
    plan = small_plan()
    grad = plan.programs["grad"]
    assert grad.resident == plan.held["optimizer"]
    held = sum(plan.held.values())
    assert plan.peak >= grad.peak >= held + grad.temporaries
    assert plan.fits


def test_gradients_are_summed_over_devices_and_weights_gathered():
    sent = small_plan().programs["grad"].sent
    assert sent["all-gather"] > 0
    assert sum(small_plan().programs["apply"].sent.values()) < 100  # A norm.


def test_the_numbers_are_json_and_the_table_has_them():
    plan = small_plan()
    numbers = json.loads(json.dumps(report.json_numbers(report.summary(plan))))
    assert numbers["fits"] is True and numbers["mfu"] is None
    assert numbers["tokens"] == plan.rows * plan.length
    text = report.table(plan)
    assert "8 devices, fsdp=8" in text and ": fits" in text


def test_a_plan_that_does_not_fit_says_what_to_change():
    small = small_plan()
    grad = dataclasses.replace(small.programs["grad"], overflow="Used 20G of 15G hbm")
    small = dataclasses.replace(small, programs={**small.programs, "grad": grad})
    assert not small.fits
    text = report.table(small)
    assert "does not fit" in text and "set model.remat to 'full'" in text
    assert "set model.attention to 'splash'" in text


def test_what_cannot_be_read_is_not_given_as_nothing():
    plan = small_plan()
    score = dataclasses.replace(plan.programs["score"], sent=None)
    plan = dataclasses.replace(plan, programs={**plan.programs, "score": score})
    assert report.summary(plan)["collective_bytes"] is None
    assert "could not be read" in report.table(plan)


def test_times_follow_the_published_figures(monkeypatch):
    chip = Chip(16e9, flops_per_s=1e12, memory_bytes_per_s=1e11, link_bytes_per_s=1e10)
    monkeypatch.setattr(Topology, "chip", chip)
    quiet = Program(0.0, 0.0, 0.0, 0.0, {}, 0.0)
    sends = dataclasses.replace(quiet, sent={"all-gather": 5e9})
    plan = dataclasses.replace(
        small_plan(), programs={"score": quiet, "grad": sends, "apply": quiet}
    )
    times = report.seconds(plan)
    numbers = report.summary(plan)
    # Half a second is sending; the rest is products on 8 devices.
    assert times["score"] + times["grad"] - 0.5 == pytest.approx(
        numbers["flops"] / 8 / 1e12
    )
    assert 0 < numbers["mfu"] < 1


def test_adapters_are_planned_beside_frozen_weights():
    model = dataclasses.replace(SMALL, lora=LoraConfig(4, 8.0, ("q_proj", "down_proj")))
    topology = parse_topology("cpu:8")
    devices = jax.devices()
    recipe = build_rl(small_config())
    plan = make_plan(recipe, model, topology, devices, compiler_options=FAST)
    # Two layers of 64 x 4 + 4 x 32 x 128 and 96 x 4 + 4 x 64, over 8 devices; lora_b of
    # q is cut over tensor alone, and so whole on each.
    adapter = 2 * (64 * 4 / 8 + 4 * 32 * 128 + 96 * 4 + 4 * 64 / 8) * 4
    assert plan.held["weights"] == plan.held["gradients"] == adapter
    assert plan.held["frozen"] == small_plan().held["weights"]
    assert plan.programs["apply"].resident == plan.held["frozen"]
    assert plan.programs["grad"].arguments > plan.held["frozen"]
    assert plan.peak < small_plan().peak


def test_rows_that_do_not_divide_are_refused():
    config = small_config()
    config.batch.rows_per_microbatch = 4
    with pytest.raises(ValueError, match="rows_per_microbatch is 4; .* 8 shards"):
        make_plan(build_rl(config), SMALL, parse_topology("cpu:8"), jax.devices())


def test_a_shape_can_be_planned_for_but_not_run():
    spec = {"name": "shape", "shape": "qwen3_4b", "dtype": "bfloat16"}
    spec |= {"layer_loop": "scan", "remat": "full", "attention": "splash"}
    config = model_config(spec)
    assert (config.num_layers, config.dtype) == (36, "bfloat16")
    with pytest.raises(ValueError, match="'qwen3_4b', which has no weights"):
        MODELS["shape"](**{k: v for k, v in spec.items() if k != "name"})
    with pytest.raises(ValueError, match="unknown shape 'qwen9'; known: qwen3_4b"):
        model_config({**spec, "shape": "qwen9"})


@pytest.mark.slow
def test_the_command_plans_for_virtual_devices():
    command = [sys.executable, "-m", "launch.plan", "--topology=cpu:4", "--json"]
    command += ["--config=configs/quickstart.py:tiny", "--config.mesh.fsdp=4"]
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    numbers = json.loads(done.stdout.splitlines()[-1])
    assert numbers["fits"] and numbers["devices"] == 4


@pytest.mark.slow
def test_the_tpu_compiler_fits_two_layers_of_a_real_model():
    pytest.importorskip("libtpu")
    script = "import tests.scale.test_plan as t; t.print_tpu_numbers()"
    environment = {**os.environ, **parse_topology("v5e:4x4").environment}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=environment,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    numbers = json.loads(done.stdout.splitlines()[-1])
    assert numbers["fits"] and numbers["devices"] == 16
    assert numbers["peak_gb_per_chip"] < 4.5
    assert numbers["collectives"]["all-gather"] > 0


def print_tpu_numbers():
    from jax.experimental import topologies

    config = demystify_grpo_t.get_config()
    config.rollout.update(max_prompt_tokens=512, max_response_tokens=1_536)
    config.batch.update(row_length=2_048, logprob_chunk=256)
    model = dataclasses.replace(
        SHAPES["qwen3_4b"],
        num_layers=2,
        dtype="bfloat16",
        layer_loop="scan",
        remat="full",
        attention="splash",
    )
    topology = parse_topology("v5e:4x4")
    devices = topologies.get_topology_desc(
        platform="tpu", topology_name=topology.name
    ).devices
    plan = make_plan(build_rl(config), model, topology, devices)
    print(json.dumps(report.json_numbers(report.summary(plan))))
