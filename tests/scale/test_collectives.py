import functools

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from agentic_jax.scale.collectives import collective_bytes
from agentic_jax.sharding import make_mesh

TEXT = """HloModule example, is_scheduled=true

%add (x: f32[], y: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%x, %y)
}

%body (carry: (s32[], bf16[64,8])) -> (s32[], bf16[64,8]) {
  %whole = bf16[64,8]{1,0} all-gather(%part), replica_groups=[2,4]<=[8], dimensions={0}
  ROOT %next = (s32[], bf16[64,8]) tuple(%i, %whole)
}

%condition (carry: (s32[], bf16[64,8])) -> pred[] {
  %last = s32[] constant(36)
  ROOT %less = pred[] compare(%i, %last), direction=LT
}

%wrapped (a: f32[16]) -> f32[2] {
  ROOT %cut = f32[2]{0} reduce-scatter(%a), replica_groups={}, to_apply=%add
}

ENTRY %main (a: f32[16]) -> f32[2] {
  %start = ((f32[16]), f32[2], u32[]) async-start(%a), calls=%wrapped
  %done = f32[2]{0} async-done(%start), calls=%wrapped
  %all = f32[16]{0} all-reduce-start(%a), replica_groups={{0,1},{2,3}}, to_apply=%add
  %moved = (f32[16]{0}, f32[16]{0}, u32[], u32[]) collective-permute-start(%a)
  %pair = (f32[4], f32[16]) all-gather-start(%a), replica_groups=[2,4]<=[4,2]T(1,0)
  ROOT %loop = (s32[], bf16[64,8]) while(%init), condition=%condition, body=%body
}
"""


def test_bytes_are_those_counted_by_hand():
    # Gathered: 36 times 64 x 8 x 2 bytes and once 16 x 4, a chip sends 3/4 of each.
    assert collective_bytes(TEXT, num_devices=8) == {
        "all-gather": pytest.approx(0.75 * (36 * 1_024 + 64)),
        "reduce-scatter": 7 * 8,  # Of 64 bytes, 7/8; the async pair counts once.
        "all-reduce": 2 * 64 / 2,
        "collective-permute": 64,
    }


def test_a_known_trip_count_is_taken():
    known = TEXT.replace(
        "body=%body", 'body=%body, backend_config={"known_trip_count":{"n":"3"}}'
    )
    sent = collective_bytes(known, num_devices=8)
    assert sent["all-gather"] == pytest.approx(0.75 * (3 * 1_024 + 64))


def test_a_compiled_loop_counts_every_turn():
    mesh = make_mesh({"fsdp": 8})
    place = functools.partial(NamedSharding, mesh)

    def scan(x, weights):
        return jax.lax.scan(lambda h, w: (h @ w, None), x, weights)[0]

    step = jax.jit(
        scan,
        in_shardings=(place(P()), place(P(None, "fsdp"))),
        out_shardings=place(P()),
    )
    x, weights = np.ones((4, 32), np.float32), np.ones((5, 32, 32), np.float32)
    sent = collective_bytes(step.lower(x, weights).compile().as_text(), num_devices=8)
    # Partial products [4, 32] are summed in each of 5 turns: 2 x 7/8 of 512 bytes.
    assert sent["all-reduce"] == pytest.approx(5 * 2 * 7 / 8 * 512)
