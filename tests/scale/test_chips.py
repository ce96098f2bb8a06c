import pytest

from agentic_jax.scale.chips import TPUS, parse_topology


def test_a_tpu_topology_compiles_from_a_machine_without_one():
    topology = parse_topology("v5e:4x4")
    assert topology.chip == TPUS["v5e"]
    assert topology.environment["JAX_PLATFORMS"] == "cpu"
    assert topology.environment["TPU_SKIP_MDS_QUERY"] == "1"


def test_virtual_devices_share_the_memory_of_this_machine(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/x")
    topology = parse_topology("cpu:8")
    assert topology.environment["XLA_FLAGS"] == (
        "--xla_dump_to=/x --xla_force_host_platform_device_count=8"
    )
    one = parse_topology("cpu:1").chip.memory_bytes
    assert topology.chip.memory_bytes == one / 8
    assert topology.chip.flops_per_s is None


@pytest.mark.parametrize("name", ["v5p-8", "v9:2x2", "v5e", "v5e:4xx", "cpu:2x2", ""])
def test_an_unknown_topology_is_refused_by_name(name):
    with pytest.raises(ValueError, match=f"topology '{name}'"):
        parse_topology(name)
