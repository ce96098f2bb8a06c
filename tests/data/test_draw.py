import json

import numpy as np
import pytest

from agentic_jax.data.draw import ByDifficulty, Shuffled
from agentic_jax.data.tasks import TaskStream
from agentic_jax.trajectory import Task

OPTIONS = {"half_life": 1.0, "prior": 1.0, "too_hard": 0.1, "too_easy": 0.9}
ALL_WRONG, MIXED, ALL_RIGHT = [0.0] * 8, [1.0] * 4 + [0.0] * 4, [1.0] * 8


def order(count, seed=0, **options):
    return ByDifficulty(count, seed, **{**OPTIONS, **options})


def test_what_was_never_tried_is_drawn_once_each_before_anything_twice():
    drawn = order(10)
    numbers = drawn.next(4) + drawn.next(4) + drawn.next(2)
    assert sorted(numbers) == list(range(10))
    later = [drawn.next(10) for _ in range(3)]  # Every pass has an order of its own.
    assert len({tuple(numbers), *map(tuple, later)}) == 4


def test_the_estimated_rate_is_the_weighted_one_with_a_prior_of_one_half():
    drawn = order(4, half_life=0.5)  # Weights halve with every 2 problems drawn.
    drawn.next(2)
    drawn.tell([0, 1], [[0.0, 0.0, 0.0], [1.0, 0.5]])
    # (0 + 0.5) / (3 + 1), (1.5 + 0.5) / (2 + 1), and 0.5 / 1 for the others.
    np.testing.assert_allclose(drawn.rates(), [1 / 8, 2 / 3, 1 / 2, 1 / 2])
    drawn.next(2)  # Half of each sample is left.
    np.testing.assert_allclose(drawn.rates()[:2], [0.5 / 2.5, 1.25 / 2])
    drawn.tell([0], [[1.0]])  # 0 * 0.5 + 1 of 3 * 0.5 + 1.
    np.testing.assert_allclose(drawn.rates()[0], 1.5 / 3.5)


def test_problems_leave_the_usable_pool_and_come_back_when_the_evidence_fades():
    drawn = order(9)
    numbers = drawn.next(9)
    hard, easy, usable = numbers[:3], numbers[3:6], numbers[6:]
    drawn.tell(numbers, [ALL_WRONG] * 3 + [ALL_RIGHT] * 3 + [MIXED] * 3)
    assert drawn.metrics() == {  # 0.5 / 9 < 0.1, 8.5 / 9 > 0.9.
        "data/too_hard_fraction": 1 / 3,
        "data/usable_fraction": 1 / 3,
        "data/too_easy_fraction": 1 / 3,
        "data/tried_fraction": 1.0,
    }
    for _ in range(2):
        assert sorted(drawn.next(3)) == sorted(usable)
        drawn.tell(usable, [MIXED] * 3)
    assert drawn.metrics()["data/usable_fraction"] == 1 / 3
    drawn.next(3)  # Nine problems drawn since: 0.5 / (8 * 0.5 + 1) = 0.1.
    assert drawn.metrics()["data/usable_fraction"] == 1.0
    assert sorted(drawn.next(6)) == sorted(hard + easy)


def test_too_few_usable_problems_are_joined_by_those_nearest_to_one_half():
    drawn = order(4)
    drawn.next(4)
    drawn.tell([0, 1, 2, 3], [MIXED, ALL_WRONG, [0.0] * 32, ALL_RIGHT * 8])
    assert drawn.next(2) == [0, 1]
    assert sorted(drawn.next(6)) == [0, 0, 1, 1, 2, 3]


def test_a_group_of_faults_says_nothing():
    drawn = order(2)
    drawn.next(2)
    drawn.tell([0, 1], [[], []])
    assert drawn.rates().tolist() == [0.5, 0.5]
    assert drawn.metrics()["data/tried_fraction"] == 0.0


def scores_of(numbers):
    """A policy that never solves the first third and always the last."""
    return [(ALL_WRONG, MIXED, ALL_RIGHT)[i // 7] for i in numbers]


@pytest.mark.parametrize("made", [lambda: order(21, 3), lambda: Shuffled(21, 3)])
@pytest.mark.parametrize("steps", [0, 1, 5, 6])
def test_a_restored_order_goes_on_where_it_stopped(made, steps):
    straight, resumed = made(), made()
    for _ in range(steps):
        numbers = straight.next(4)
        straight.tell(numbers, scores_of(numbers))
    resumed.next(3)
    resumed.restore(json.loads(json.dumps(straight.state())))
    for _ in range(12):
        numbers = straight.next(4)
        assert resumed.next(4) == numbers
        straight.tell(numbers, scores_of(numbers))
        resumed.tell(numbers, scores_of(numbers))
    assert resumed.state() == straight.state()


def test_most_of_what_is_drawn_has_a_signal_where_a_shuffle_has_a_third():
    def useful(drawn):
        count = 0
        for _ in range(60):
            numbers = drawn.next(7)
            drawn.tell(numbers, scores_of(numbers))
            count += sum(7 <= i < 14 for i in numbers)
        return count / 420

    assert useful(Shuffled(21, 0)) == pytest.approx(1 / 3)
    assert useful(order(21, half_life=4.0)) > 0.7


@pytest.mark.parametrize(
    "option, value, problem",
    [
        ("half_life", 0.0, "half_life is 0.0"),
        ("prior", -1.0, "prior -1.0"),
        ("too_hard", 0.5, "too_hard is 0.5"),
        ("too_easy", 1.1, "too_easy 1.1"),
    ],
)
def test_options_out_of_range_are_refused(option, value, problem):
    with pytest.raises(ValueError, match=problem):
        order(3, **{option: value})


def test_a_stream_tells_its_order_of_the_tasks_drawn_last():
    tasks = [Task("same", ({"role": "user", "content": "?"},), str(i)) for i in "123"]
    stream = TaskStream(tasks, 0, lambda count, seed: order(count, seed))
    first = stream.next(3)
    stream.tell([ALL_WRONG, MIXED, MIXED])
    assert {t.answer for t in stream.next(2)} == {t.answer for t in first[1:]}
    with pytest.raises(ValueError, match="1 groups for 2 tasks"):
        stream.tell([MIXED])
