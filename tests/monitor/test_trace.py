import json

import numpy as np
import pytest

from agentic_jax.batch import Scores
from agentic_jax.monitor.trace import (
    drop_traces,
    read_trace,
    token_texts,
    trace_path,
    trace_rows,
    write_trace,
)
from agentic_jax.packing import pack_step
from tests.fakes import sample, turn


def make_rows(most_groups=9):
    lost = sample([1], turn([2]), stop="fault", score=None)
    groups = [[sample([1, 2], turn([3, 4], [5], ["ok"]), turn([6])), lost]]
    step = pack_step(
        groups,
        num_updates=1,
        length=8,
        rows_multiple=1,
        rng=np.random.default_rng(0),
    )
    shape = step.batch.tokens.shape
    ramp = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    scores = Scores(logprobs=ramp, entropy=ramp + 0.123456)
    return trace_rows(step, scores=scores, advantages=ramp * 2, most_groups=most_groups)


def test_a_row_has_the_trajectory_and_equally_long_token_lists():
    row, lost = make_rows()
    tokens = row["tokens"]
    assert tokens["ids"] == [1, 2, 3, 4, 5, 6]
    assert tokens["mask"] == [0, 0, 1, 1, 0, 1]
    assert tokens["turn"] == [0, 0, 1, 1, 1, 2]
    assert tokens["engine_logprobs"] == [0, 0, -1, -2, 0, -1]
    assert tokens["entropy"][2] == 2.12346
    assert tokens["advantage"] == [0, 2, 4, 6, 8, 10]
    assert len({len(values) for values in tokens.values()}) == 1
    assert row["turns"][0]["calls"][0]["result"]["status"] == "ok"
    assert (row["stop"], row["score"], row["reward"]) == ("answer", 1.0, 1.0)
    assert lost["tokens"]["ids"] == []


def test_only_so_many_groups_are_kept():
    assert make_rows(most_groups=0) == []


def test_rows_with_line_separators_in_their_text_read_back_one_for_one(tmp_path):
    words = ["", "a", "\u2028", "b\x85", "c\r\n", "\ud800", "z"]

    def decode(ids):
        return "".join(words[i] for i in ids)

    written = write_trace(tmp_path, 7, make_rows(), decode=decode)
    rows = read_trace(trace_path(tmp_path, 7))
    assert rows == json.loads(json.dumps(written))
    assert rows[0]["text"] == "a\u2028b\x85c\r\n\ud800z"
    assert token_texts(rows[0]) == words[1:]
    assert token_texts(rows[1]) == []  # A fault.
    assert rows[0]["step"] == 7


def test_a_row_without_characters_is_named():
    with pytest.raises(ValueError, match=r"group 0 sample 0 of step 3 has no"):
        token_texts({**make_rows()[0], "step": 3, "text": "abc"})


def test_traces_of_steps_that_will_be_made_again_are_dropped(tmp_path):
    for step in (1, 2, 3):
        write_trace(tmp_path, step, [], decode=str)
    drop_traces(tmp_path, from_step=2)
    left = sorted(path.name for path in (tmp_path / "trajectories").iterdir())
    assert left == ["step_000001.jsonl"]
