import pytest

from agentic_jax.recipe import build_rl
from agentic_jax.training.conditions import EarlyStop, Watch, read_condition
from agentic_jax.training.stages import Stages, stage_table
from tests.training.test_rl import tiny

OTHER = {"name": "word_problems", "split": "train", "count": 7, "seed": 3}
LATER = [
    {"after": {"step": 2}, "set": {"rollout.max_turns": 2}},
    {
        "after": {"metric": "reward/mean", "above": 0.5, "for": 2},
        "set": {"tasks": {**OTHER, "digits": [2, 2]}, "rollout.max_turns": 1},
    },
]


def told(spec, values):
    watch = Watch(read_condition(spec, "here"))
    held = []
    for value in values:
        watch.tell({"reward/mean": value})
        held.append(watch.holds)
    return held, watch


def test_a_condition_holds_after_so_many_steps_in_a_row():
    spec = {"metric": "reward/mean", "below": 0.2, "for": 2}
    assert told(spec, [0.1, 0.3, 0.1, 0.1, 0.2])[0] == [0, 0, 0, 1, 0]
    spec = {"metric": "reward/mean", "above": 0.2, "for": 1}
    assert told(spec, [0.2, 0.3])[0] == [0, 1]


def test_a_drop_is_measured_from_the_best_so_far_and_survives_a_restart():
    spec = {"metric": "reward/mean", "drop": 0.3, "for": 2}
    held, watch = told(spec, [0.1, 0.8, 0.4, 0.6, 0.4])
    assert held == [0, 0, 0, 0, 0]
    again = Watch(watch.condition)
    again.restore(watch.state())
    again.tell({"reward/mean": 0.4})
    assert again.holds
    assert (
        str(again.condition) == "reward/mean more than 0.3 below its best for 2 steps"
    )


def test_a_metric_that_is_not_there_is_an_error_but_for_evaluations():
    watch = Watch(read_condition({"metric": "eval/x", "above": 0, "for": 1}, "here"))
    watch.tell({"reward/mean": 1.0})
    assert not watch.holds
    with pytest.raises(ValueError, match="no metric 'eval/x'.* there are eval/y"):
        watch.tell({"eval/y": 1.0})


@pytest.mark.parametrize(
    "spec, says",
    [
        ({"metric": "m", "above": 1, "below": 0, "for": 1}, "and one of above, below"),
        ({"metric": "m", "above": 1}, "it takes metric, for"),
        ({"metric": "time/step_s", "above": 1, "for": 1}, "none of time/"),
        ({"metric": "m", "above": "1", "for": 1}, "wanted a number"),
        ({"metric": "m", "above": 1, "for": 0}, "wanted a number"),
    ],
)
def test_what_is_no_condition_is_refused(spec, says):
    with pytest.raises(ValueError, match=f"early_stop.e.*{says}"):
        build_rl(tiny(early_stop={"e": spec}))


def test_early_stop_says_why_and_changed_conditions_start_anew():
    specs = {
        "reward": {"metric": "reward/mean", "below": 0.1, "for": 1},
        "entropy": {"metric": "policy/entropy", "below": 0.1, "for": 2},
    }
    early = EarlyStop(specs)
    early.tell({"reward/mean": 0.0, "policy/entropy": 0.0})
    assert early.reason == "reward/mean below 0.1 for 1 steps"
    changed = {**specs, "reward": {**specs["reward"], "below": 0.05}}
    again = EarlyStop(changed)
    again.restore(early.state())
    assert again.reason == ""
    again.tell({"reward/mean": 1.0, "policy/entropy": 0.0})
    assert again.reason == "policy/entropy below 0.1 for 2 steps"


def test_stages_follow_one_another_and_a_restart_is_in_the_same_one():
    stages = Stages(build_rl(tiny(stages=LATER)))
    low, high = {"reward/mean": 0.1}, {"reward/mean": 0.9}
    assert stages.recipe.config["rollout"]["max_turns"] == 4
    assert not stages.tell(0, high) and stages.index == 0
    assert not stages.tell(1, high) and stages.index == 1
    assert stages.recipe.config["rollout"]["max_turns"] == 2
    stages.tell(2, high)
    stages.tell(3, low)
    stages.tell(4, high)
    again = Stages(build_rl(tiny(stages=LATER)))
    stream = stages.stream
    stream.next(3)
    again.restore(stages.state(), stream.state())
    assert again.index == 1
    assert again.stream.next(2) == stream.next(2)
    assert again.tell(5, high) and again.index == 2
    assert again.recipe.config["tasks"]["count"] == 7
    assert again.recipe.config["rollout"]["max_turns"] == 1
    assert again.metrics() == {"data/stage": 2.0}
    assert not again.tell(6, high)


@pytest.mark.parametrize(
    "entry, says",
    [
        ({"after": {"step": 2}, "sets": {}}, "it takes 'after' and 'set'"),
        ({"after": {"step": 0}, "set": {}}, "a whole number from 1 on"),
        ({"after": {"step": 2}, "set": {"seed": 1}}, "sets 'seed'.*; a stage may set"),
        (
            {"after": {"step": 2}, "set": {"reward.nmae.x": 1}},
            "sets 'reward.nmae.x': there is no such section",
        ),
        (
            {"after": {"step": 2}, "set": {"rollout.max_response_tokens": 900}},
            "batch.row_length is 80",
        ),
        ({"after": {"step": 2}, "set": {"reward.max_calls": 1}}, "'max_calls'"),
    ],
)
def test_a_stage_that_cannot_be_is_refused_before_anything_starts(entry, says):
    with pytest.raises(ValueError, match=says):
        config = tiny(stages=[entry])
        config.reward = {"name": "outcome"}
        build_rl(config)


def test_steps_of_stages_rise():
    with pytest.raises(ValueError, match="stages.1..after.step is 2; wanted above 2"):
        build_rl(tiny(stages=[LATER[0], LATER[0]]))


def test_the_table_has_a_line_for_each_change():
    table = stage_table(build_rl(tiny(stages=LATER)).config).splitlines()
    assert table[:2] == ["  stage 1 after step 2", "    rollout.max_turns = 2"]
    assert table[2] == "  stage 2 after reward/mean above 0.5 for 2 steps"
