import json

import numpy as np
import pytest

from agentic_jax.trajectory import from_json, to_json
from tests.fakes import trajectory, turn

TWO_TURNS = trajectory([1, 2], turn([3, 4], [5, 6, 7], ["ok"]), turn([8]))


def test_tokens_are_prompt_then_each_turn_and_its_results():
    assert TWO_TURNS.token_ids.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert TWO_TURNS.num_response_tokens == 6
    assert TWO_TURNS.num_policy_tokens == 3
    assert [c.result.status for c in TWO_TURNS.calls] == ["ok"]


def test_json_round_trips():
    again = from_json(json.loads(json.dumps(to_json(TWO_TURNS))))
    assert to_json(again) == to_json(TWO_TURNS)
    assert again.turns[0].token_ids.dtype == np.int32
    assert again.task == TWO_TURNS.task


@pytest.mark.parametrize("broken", [{}, {"turns": 3}, {"task": {"id": "x"}}])
def test_a_malformed_record_is_a_value_error(broken):
    with pytest.raises(ValueError, match="not a trajectory"):
        from_json({**to_json(TWO_TURNS), **broken} if broken else broken)
