"""Whole steps of recipes that branch or reward calls, with a policy that calls."""

import dataclasses
import functools
import json
import logging

import jax
import numpy as np
import pytest

from agentic_jax.batch import Scores
from agentic_jax.losses.aggregation import token_mean_weights
from agentic_jax.losses.correction import no_correction
from agentic_jax.losses.credit import group_normalized
from agentic_jax.monitor.trace import read_trace, trace_path
from agentic_jax.packing import pack
from agentic_jax.recipe import build_rl
from agentic_jax.rollout.engine import Completion
from agentic_jax.training import rl
from agentic_jax.training.update import make_targets_fn
from tests.fakes import sample, turn
from tests.training.test_rl import tiny, without_time

ARPO = {
    **{"name": "arpo", "roots": 2, "beam": 2, "shared": "once"},
    **{"entropy_weight": 0.2, "branch_probability": 0.9},
}
AEPO = {
    **{"name": "aepo", "beta": 0.5, "beam": 2, "shared": "each"},
    **{"entropy_weight": 0.2, "branch_probability": 0.1},
}


def negate(number: int) -> int:
    """Negates a number.

    Args:
        number: any.
    """
    return -number


async def even(trajectory, services):
    return float(trajectory.num_policy_tokens % 2 == 0)


class Caller:
    """An engine that calls a tool in two turns of three, as its seed says."""

    def __init__(self, params, model, chat):
        self._chat, self._version = chat, 0

    async def generate(self, token_ids, params, *, session):
        rng = np.random.default_rng(params.seed)
        arguments = {"number": int(rng.integers(99))}
        call = json.dumps({"name": "negate", "arguments": arguments})
        text = f"hm <tool_call>\n{call}\n</tool_call>" if rng.random() < 0.7 else "4"
        ids = self._chat.encode(text + "<|im_end|>")
        size = len(ids)
        tops = -rng.random((size, params.top_logprobs)).astype(np.float32)
        zeros = np.zeros(size, np.float32)
        return Completion(ids, zeros, "stop", self._version, 0, tops)

    async def release(self, session):
        pass

    async def update_weights(self, params, version):
        self._version = version

    async def close(self):
        pass

    def stats(self):
        return {}


def calling(**changes):
    here = "tests.training.test_exploration"
    config = tiny(num_steps=1, engine={"name": f"{here}:Caller"}, **changes)
    function = {"name": "function", "function": f"{here}:negate"}
    config.tools = {"negate": {**function, "timeout": 5.0, "max_chars": 40}}
    config.sandbox = {"name": "none"}
    config.verifier = {"name": f"{here}:even"}
    config.rollout.update(top_logprobs=10, max_response_tokens=208, max_turns=3)
    config.batch.row_length = 240
    config.batch.logprob_chunk = 48
    return config


def run(workdir, config):
    _, params = rl.train(build_rl(config), workdir=workdir)
    return jax.device_get(params), without_time(workdir)


@pytest.fixture(scope="module")
def collapsed(tmp_path_factory):
    """A run with branches whose second stage ends early, and its last warning."""
    workdir = tmp_path_factory.mktemp("collapsed")
    config = calling(
        explore=ARPO,
        credit={"name": "arpo_hard", "eps": 1e-6},
        early_stop={"any": {"metric": "rollout/turns_mean", "above": 0, "for": 3}},
        stages=[{"after": {"step": 1}, "set": {"rollout.max_turns": 1}}],
    )
    config.num_steps = 9
    config.checkpoint.update(every=1, keep=1, best="reward/mean")
    _, rows = run(workdir, config)
    return workdir, config, rows


def test_branches_go_on_after_what_another_one_played(collapsed):
    workdir, _, rows = collapsed
    assert all(row["policy/grad_norm"] > 0 for row in rows)
    groups = {}
    for row in read_trace(trace_path(workdir, 0)):
        groups.setdefault(row["group"], []).append(row)
    branches = [(g, row) for g in groups.values() for row in g if row["shared_turns"]]
    assert branches
    for group, row in branches:
        kept = row["tokens"]["turn"].index(row["shared_turns"] + 1)
        heads = [other["tokens"]["ids"][:kept] for other in group if other is not row]
        assert row["tokens"]["ids"][:kept] in heads


def test_a_run_that_collapses_ends_with_its_best_checkpoint_kept(collapsed, caplog):
    workdir, config, rows = collapsed
    assert [row["data/stage"] for row in rows] == [0.0, 1.0, 1.0]
    assert rows[1]["rollout/turns_mean"] == 1.0
    with caplog.at_level(logging.WARNING, logger="absl"):
        assert run(workdir, config)[1] == rows  # Started again, it only says so.
    best = 1 + int(np.argmax([row["reward/mean"] for row in rows]))
    says = caplog.messages[-1]
    assert "stopped early, after 3 of 9 steps: rollout/turns_mean above 0" in says
    assert f"the best by reward/mean {workdir / 'checkpoints' / str(best)}" in says
    kept = {path.name for path in (workdir / "checkpoints").iterdir()}
    assert kept == {str(best), "3"}


@pytest.mark.slow
def test_arpo_resumes_alike(tmp_path):
    config = calling(explore=ARPO, credit={"name": "arpo_hard", "eps": 1e-6})
    config.num_steps = 2
    params, rows = run(tmp_path / "straight", config)
    config.num_steps = 1
    run(tmp_path / "resumed", config)
    config.num_steps = 2
    again, rows_again = run(tmp_path / "resumed", config)
    assert rows == rows_again
    jax.tree.map(np.testing.assert_array_equal, params, again)


@pytest.mark.slow
@pytest.mark.parametrize(
    "credit",
    [
        {"name": "tepo_sparse", "eps": 1e-6, "markup": "out"},
        {
            **{"name": "tepo_dense", "eps": 1e-6, "markup": "in"},
            **{"alpha": 0.5, "final": "final_traj"},
        },
    ],
)
def test_tepo_credits_calls_by_the_entropies_of_the_sampling_policy(credit, tmp_path):
    _, (row,) = run(tmp_path, calling(credit=credit))
    assert row["policy/grad_norm"] > 0 and row["tool/calls_mean"] > 0
    advantages = [
        np.array(traced["tokens"]["advantage"])[np.array(traced["tokens"]["mask"]) > 0]
        for traced in read_trace(trace_path(tmp_path, 0))
    ]
    differ = [len(set(a.tolist())) > 1 for a in advantages]
    assert any(differ) == (credit["name"] == "tepo_dense")


@pytest.mark.slow
def test_aepo_trains(tmp_path):
    credit = {"name": "aepo", "eps": 1e-6, "alpha": 0.2}
    config = calling(explore=AEPO, credit=credit)
    config.surrogate = {"name": "gradient_keeping", "eps_low": 0.2, "eps_high": 0.28}
    config.surrogate.cap = 10.0
    _, (row,) = run(tmp_path, config)
    assert row["policy/grad_norm"] > 0 and row["rollout/shared_turns_mean"] == 0


def test_branching_without_entropies_is_refused():
    config = calling(explore=ARPO)
    config.rollout.top_logprobs = 0
    with pytest.raises(ValueError, match="set rollout.top_logprobs = 10"):
        build_rl(config)


def test_turns_that_are_trained_elsewhere_have_credit_but_no_weight():
    parent = [turn([3, 4], [5], ["ok"]), turn([6])]
    group = [sample([1, 2], *parent), sample([1, 2], parent[0], turn([7]), reward=0.0)]
    group[1] = dataclasses.replace(
        group[1],
        trajectory=dataclasses.replace(group[1].trajectory, shared_turns=1),
    )
    batch, outcome = pack([group], length=8, rows_multiple=2)
    zeros = np.zeros(batch.tokens.shape, np.float32)
    targets_fn = make_targets_fn(
        functools.partial(group_normalized, eps=0.0),
        token_mean_weights,
        no_correction,
    )
    targets = targets_fn(outcome, Scores(zeros, zeros), batch, num_updates=1)
    # [3, 4] once, 6 and 7 are trained: 1/4 each. Rewards 1 and 0 have std 1/sqrt(2).
    wanted = {3: [0.25, 0.0], 4: [0.25, 0.0], 6: [0.25], 7: [0.25]}
    for token, weights in wanted.items():
        found = np.asarray(targets.weights)[batch.tokens == token]
        assert sorted(found, reverse=True) == pytest.approx(weights)
    kept = np.asarray(targets.mask)[batch.tokens == 3]
    assert sorted(kept) == [False, True]
    credit = np.asarray(targets.advantages)[batch.tokens == 3]
    assert sorted(credit) == pytest.approx([-0.70710678, 0.70710678])
