import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentic_jax import sharding
from agentic_jax.training import optimizer, state
from agentic_jax.training.checkpoint import Checkpointer

ADAMW = optimizer.adamw(
    schedule={"name": "constant", "learning_rate": 1e-3, "warmup_steps": 1},
    b1=0.9,
    b2=0.95,
    eps=1e-8,
    weight_decay=0.1,
    clip_norm=1.0,
)


def make_state(fill):
    params = {"norm": {"scale": jnp.full((8,), fill)}}
    return state.init(params, ADAMW)


def test_what_is_saved_is_what_it_was_even_if_it_is_donated_at_once(tmp_path):
    checkpoints = Checkpointer(tmp_path, keep=2)
    saved = make_state(1.0)
    checkpoints.save(1, saved, {"stream": {"taken": 3}})
    overwrite = jax.jit(
        lambda s: jax.tree.map(lambda x: x * 0 + 7, s), donate_argnums=0
    )
    jax.block_until_ready(overwrite(saved))
    checkpoints.wait()
    restored, extra = checkpoints.restore(make_state(0.0))
    jax.tree.map(np.testing.assert_array_equal, restored, make_state(1.0))
    assert extra == {"stream": {"taken": 3}}
    checkpoints.close()


def test_only_the_newest_are_kept(tmp_path):
    checkpoints = Checkpointer(tmp_path, keep=2)
    assert checkpoints.latest() is None
    for step in (1, 2, 3):
        checkpoints.save(step, make_state(float(step)), {})
    checkpoints.wait()
    assert checkpoints.latest() == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["2", "3"]
    checkpoints.close()


def test_the_best_is_kept_beside_the_newest(tmp_path):
    checkpoints = Checkpointer(tmp_path, keep=1, keep_best=True)
    assert checkpoints.best() is None
    for step, score in ((1, 0.5), (2, 0.9), (3, None), (4, 0.9), (5, 0.1), (6, None)):
        checkpoints.save(step, make_state(float(step)), {}, score=score)
    checkpoints.wait()
    assert checkpoints.best() == (4, 0.9)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["4", "6"]
    checkpoints.close()
    again = Checkpointer(tmp_path, keep=1, keep_best=True)
    assert (again.best(), again.latest()) == ((4, 0.9), 6)
    again.close()


def test_an_empty_directory_has_nothing_to_restore(tmp_path):
    checkpoints = Checkpointer(tmp_path, keep=1)
    with pytest.raises(FileNotFoundError, match="no checkpoint in"):
        checkpoints.restore(make_state(0.0))
    checkpoints.close()


def test_a_full_disk_says_what_is_needed_and_keeps_what_is_saved(tmp_path):
    checkpoints = Checkpointer(tmp_path, keep=2, free_bytes=lambda path: 10)
    with pytest.raises(OSError, match="needs 0 MB, 0 MB are free .* resumes from step"):
        checkpoints.save(1, make_state(1.0), {})
    checkpoints.close()


def test_sharded_state_is_restored_with_the_templates_shardings(tmp_path):
    rules = sharding.RULES

    def placed(axes):
        mesh = sharding.make_mesh(axes, jax.devices()[:4])
        tree = make_state(2.0)
        return jax.device_put(tree, sharding.infer_shardings(tree, rules, mesh))

    checkpoints = Checkpointer(tmp_path, keep=1)
    checkpoints.save(1, placed({"fsdp": 4}), {})
    checkpoints.wait()
    template = placed({"fsdp": 2, "tensor": 2})
    restored, _ = checkpoints.restore(template)
    jax.tree.map(np.testing.assert_array_equal, restored, template)
    same = jax.tree.map(lambda a, b: a.sharding == b.sharding, restored, template)
    assert all(jax.tree.leaves(same))
    checkpoints.close()
