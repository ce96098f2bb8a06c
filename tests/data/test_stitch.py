import dataclasses

import numpy as np
import pytest

from agentic_jax.chat.template import Chat
from agentic_jax.chat.tokenizer import train_tokenizer
from agentic_jax.data.retell import retell, tell
from agentic_jax.data.stitch import arithmetic_steps, stitch
from agentic_jax.tools.base import Tool
from agentic_jax.trajectory import CallRecord, ToolCall, ToolResult
from tests.fakes import TASK


async def run(code):
    raise AssertionError("a stitched call is never run")


SCHEMA = {"type": "object", "properties": {"code": {"type": "string"}}}
PYTHON = Tool("python", "Runs Python code.", SCHEMA, run, 5.0)
TEACHER = Chat(train_tokenizer([], vocab_size=263), (PYTHON,))
STUDENT = Chat(
    train_tokenizer(["print(12 * 34) boxed"] * 50, vocab_size=300), (PYTHON,)
)
CALL = '<tool_call>\n{"name": "python", "arguments": {"code": "%s"}}\n</tool_call>'
SOLUTION = "Twelve boxes hold 12 x 34 = 408 pens.\nWith 2 more, 408+2=410. \\boxed{410}"


def written(text, chat=TEACHER, score=1.0):
    return tell(TASK, [(text, ())], chat=chat, score=score)


def texts(trajectory, chat=TEACHER):
    return [chat.turn_text(turn) for turn in trajectory.turns]


@pytest.mark.parametrize(
    "text, codes",
    [
        ("12 x 34 = 408", ["print(12 * 34)"]),
        ("$12\\times 34=408$", ["print(12 * 34)"]),
        ("so 1,200 + 3.5 = 1,203.5.", ["print(1200 + 3.5)"]),
        ("6 ÷ 4 - 1 = 0.5", ["print(6 / 4 - 1)"]),
        ("1+1=2 and 2+2=4", ["print(1 + 1)", "print(2 + 2)"]),
        ("2 + 3 = 5 = 4 + 1", ["print(2 + 3)"]),
        ("x2 * 3 = 6, n = 4, 3 * y = 6", []),
        ("page 3 = three", []),
    ],
)
def test_steps_are_equations_of_numbers(text, codes):
    steps = arithmetic_steps(text)
    assert [step.code for step in steps] == codes
    assert all("," not in step.result for step in steps)
    assert text[steps[0].end :][:1] in ("", "$", ".", " ") if steps else True


def test_steps_become_calls_that_print_what_the_solution_says():
    stitched = stitch(written(SOLUTION), chat=TEACHER, max_calls=3)
    assert texts(stitched) == [
        "Twelve boxes hold " + CALL % "print(12 * 34)",
        "408 pens.\nWith 2 more, " + CALL % "print(408 + 2)",
        "410. \\boxed{410}",
    ]
    results = [(r.result.text, r.result.status) for r in stitched.calls]
    assert results == [("408", "ok"), ("410", "ok")]
    assert (stitched.stop, stitched.score) == ("answer", 1.0)
    for turn in stitched.turns[:-1]:  # The policy's parser reads what was written.
        (call,) = TEACHER.parse(TEACHER.decode(turn.token_ids)).calls
        assert call == turn.calls[0].call
    assert stitched.turns[-1].token_ids[-1] == TEACHER.end_of_turn_id


def test_only_so_many_steps_are_replaced():
    stitched = stitch(written(SOLUTION), chat=TEACHER, max_calls=1)
    assert texts(stitched)[1] == "408 pens.\nWith 2 more, 408+2=410. \\boxed{410}"


def test_tagged_calls_are_written_as_such_and_other_formats_refused():
    tagged = dataclasses.replace(TEACHER, format="tagged_search")
    stitched = stitch(written("2*3=6."), chat=tagged, max_calls=1)
    assert texts(stitched, tagged) == ["<python>print(2 * 3)</python>", "6."]
    with pytest.raises(ValueError, match="chat.format is 'llama3'"):
        stitch(
            written("2*3=6."),
            chat=dataclasses.replace(TEACHER, format="llama3"),
            max_calls=1,
        )


def test_a_solution_without_steps_is_none_and_one_with_turns_is_refused():
    assert stitch(written("It is 4."), chat=TEACHER, max_calls=1) is None
    stitched = stitch(written("2*3=6."), chat=TEACHER, max_calls=1)
    with pytest.raises(ValueError, match="2 turns, max_calls 1"):
        stitch(stitched, chat=TEACHER, max_calls=1)
    with pytest.raises(ValueError, match="1 turns, max_calls 0"):
        stitch(written("2*3=6."), chat=TEACHER, max_calls=0)


def test_a_trajectory_is_retold_in_the_tokens_of_another_model():
    heard = stitch(written(SOLUTION), chat=TEACHER, max_calls=3)
    told = retell(heard, heard=TEACHER, told=STUDENT)
    assert texts(told, STUDENT) == texts(heard)
    assert len(told.token_ids) < len(heard.token_ids)
    whole = STUDENT.decode(told.token_ids)
    assert whole == TEACHER.decode(heard.token_ids)
    again = STUDENT.encode(whole)  # What the student would see in one piece.
    np.testing.assert_array_equal(told.token_ids, again)
    other = dataclasses.replace(STUDENT, format="tagged_search")
    with pytest.raises(ValueError, match="as 'hermes', the model .* 'tagged_search'"):
        retell(heard, heard=TEACHER, told=other)


def test_thinking_that_a_prompt_opens_is_not_said_twice():
    template = TEACHER.tokenizer.chat_template.replace(
        "assistant\\n' }}{%- endif", "assistant\\n<think>\\n' }}{%- endif"
    )
    tokenizer = train_tokenizer([], vocab_size=263)
    tokenizer.chat_template = template
    thinker = Chat(tokenizer)
    heard = written("2 it is\n</think>\n\\boxed{2}", chat=thinker)
    assert texts(heard, thinker) == ["<think>\n2 it is\n</think>\n\\boxed{2}"]
    assert texts(retell(heard, heard=thinker, told=thinker), thinker) == texts(
        heard, thinker
    )
    heard = written("1+1=2\n</think>\n2+2=4.", chat=thinker)
    stitched = stitch(heard, chat=thinker, max_calls=2)
    assert texts(stitched, thinker)[0].startswith("<think>\n1+1=2\n</think>\n<tool_c")
    assert thinker.decode(stitched.token_ids).count("<think>") == 2  # A turn, a prompt.
    heard = written("2 it is\n</think>\n\\boxed{2}", chat=thinker)
    plain = retell(heard, heard=thinker, told=TEACHER)
    assert texts(plain) == texts(heard, thinker)


def test_only_the_last_turn_is_without_calls():
    record = CallRecord(ToolCall("python", {"code": "1"}), ToolResult("1", "ok"), 0.0)
    for said in ([], [("a", ()), ("b", ())], [("a", (record,))]):
        with pytest.raises(ValueError, match="every turn but the last makes calls"):
            tell(TASK, said, chat=TEACHER, score=None)
