import asyncio
import contextlib
import dataclasses

import numpy as np
import pytest

from agentic_jax.chat.template import Chat
from agentic_jax.chat.tokenizer import train_tokenizer
from agentic_jax.rollout.engine import Completion, SamplingParams
from agentic_jax.rollout.episode import Limits, run_episode
from agentic_jax.rollout.scripted import ScriptedEngine
from agentic_jax.tools.base import Tool
from agentic_jax.trajectory import Task, ToolResult

TASK = Task("t", ({"role": "user", "content": "2+2?"},), "4")
PARAMS = SamplingParams(max_tokens=1)
LIMITS = Limits(max_prompt_tokens=200, max_response_tokens=2_000, max_turns=4)
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 2}}\n</tool_call>'
END = "<|im_end|>"


async def add(a: int, b: int) -> ToolResult:
    return ToolResult(str(a + b), "ok")


async def broken() -> ToolResult:
    raise ConnectionRefusedError("the service is down")


NUMBERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}
TOOLS = {
    "add": Tool("add", "Adds.", {"type": "object", "properties": NUMBERS}, add, 5.0),
    "broken": Tool("broken", "", {"type": "object", "properties": {}}, broken, 5.0),
}
CHAT = Chat(train_tokenizer([], vocab_size=263), tuple(TOOLS.values()))


def play(
    replies,
    *,
    limits=LIMITS,
    engine=None,
    tools=TOOLS,
    after=(),
    sampling=PARAMS,
):
    engine = engine or ScriptedEngine({"s": replies}, encode=CHAT.encode)
    return asyncio.run(
        run_episode(
            TASK,
            engine,
            chat=CHAT,
            tools=tools,
            limits=limits,
            sampling=sampling,
            seed_of_turn=lambda k: k,
            session="s",
            after=after,
        )
    )


def statuses(trajectory):
    return [record.result.status for record in trajectory.calls]


def test_a_call_is_run_and_its_result_is_what_the_template_adds():
    done = play([CALL + END, "\\boxed{4}" + END])
    assert done.stop == "answer"
    assert statuses(done) == ["ok"]
    messages = [
        *TASK.messages,
        {"role": "assistant", "content": CALL},
        {"role": "tool", "content": "4"},
    ]
    whole = CHAT.render_text(messages, generation=True) + "\\boxed{4}" + END
    assert CHAT.decode(done.token_ids) == whole
    assert done.token_ids.tolist() == CHAT.encode(whole).tolist()


def test_sampled_ids_are_kept_when_the_text_would_encode_otherwise():
    ids = [CHAT.encode(c)[0] for c in "ab"] + [CHAT.end_of_turn_id]
    done = play([ids])
    assert done.turns[0].token_ids.tolist() == ids
    assert len(done.turns[0].logprobs) == len(ids)


@pytest.mark.parametrize(
    "written, says",
    [
        (CALL.replace('"add"', '"ad"'), "Unknown tool 'ad'. Available tools: add"),
        (CALL.replace('"a": 2, ', ""), "add takes: a, b. Missing: ['a']"),
        (CALL.replace('"a": 2', '"a": "2"'), "a must be a JSON integer"),
        (CALL.replace("}}", "}"), ""),
    ],
)
def test_a_bad_call_is_answered_in_words_and_the_episode_goes_on(written, says):
    done = play([written + END, "\\boxed{4}" + END])
    assert statuses(done) == ["bad_call"]
    assert says in done.calls[0].result.text
    assert done.stop == "answer"


def test_two_calls_in_a_turn_are_answered_in_order():
    bad = CALL.replace('"add"', '"nope"')
    done = play([CALL + "\n" + bad + END, "x" + END])
    assert statuses(done) == ["ok", "bad_call"]
    results = CHAT.decode(done.turns[0].result_token_ids)
    assert results.index("4") < results.index("Unknown tool")
    assert results.count("<|im_start|>user") == 1


def test_a_service_that_fails_is_a_fault_and_not_an_answer():
    done = play([CALL.replace('"add"', '"broken"').replace('"a": 2, "b": 2', "") + END])
    assert done.stop == "fault"
    assert "ConnectionRefusedError: the service is down" in done.fault
    assert done.score is None


def test_an_engine_that_fails_is_a_fault():
    assert play([]).stop == "fault"


class Recording(ScriptedEngine):
    """A scripted engine that notes what it was asked."""

    def __init__(self, replies):
        super().__init__({"s": replies}, encode=CHAT.encode)
        self.asked = []

    async def generate(self, token_ids, params, *, session):
        self.asked.append((len(token_ids), params.max_tokens, params.seed))
        return await super().generate(token_ids, params, session=session)


def test_one_budget_covers_sampled_and_tool_tokens():
    engine = Recording([CALL + END, "\\boxed{4}" + END])
    done = play([], engine=engine)
    first = done.turns[0]
    used = len(first.token_ids) + len(first.result_token_ids)
    prompt = len(done.prompt_token_ids)
    assert engine.asked == [(prompt, 2_000, 0), (prompt + used, 2_000 - used, 1)]


def test_results_that_leave_no_room_end_the_trajectory_within_its_budget():
    budget = len(CHAT.encode(CALL + END)) + 5
    done = play(
        [CALL + END], limits=dataclasses.replace(LIMITS, max_response_tokens=budget)
    )
    assert done.stop == "max_tokens"
    assert done.num_response_tokens <= budget
    assert statuses(done) == ["ok"]


def test_a_turn_cut_by_length_runs_no_tool_and_gets_no_end_token():
    done = play(
        [CALL + END], limits=dataclasses.replace(LIMITS, max_response_tokens=20)
    )
    assert done.stop == "max_tokens"
    assert done.calls == ()
    assert done.turns[0].token_ids.tolist() == CHAT.encode(CALL + END)[:20].tolist()


def test_the_last_turn_runs_no_calls():
    done = play([CALL + END] * 4)
    assert done.stop == "max_turns"
    assert len(done.turns) == 4
    assert statuses(done) == ["ok"] * 3


def test_a_prompt_over_its_limit_is_named():
    limits = dataclasses.replace(LIMITS, max_prompt_tokens=3)
    with pytest.raises(ValueError, match="task 't' has .* max_prompt_tokens is 3"):
        play(["x" + END], limits=limits)


def test_a_stop_string_keeps_its_tag_and_the_end_of_turn_is_ours():
    class Stopped(ScriptedEngine):
        async def generate(self, token_ids, params, *, session):
            ids = CHAT.encode(CALL)
            if len(token_ids) > 200:
                ids = CHAT.encode("done" + END)
            return Completion(ids, np.zeros(len(ids), np.float32), "stop", 0)

    done = play([], engine=Stopped({}))
    assert CHAT.decode(done.turns[0].token_ids).endswith("</tool_call>")
    assert done.turns[0].result_token_ids[0] == CHAT.end_of_turn_id
    assert statuses(done)[0] == "ok"


def test_an_episode_goes_on_after_turns_of_another_one():
    first = play([CALL + END, "\\boxed{4}" + END])
    asked = []

    def say(context):
        asked.append(context)
        return "\\boxed{5}" + END

    engine = ScriptedEngine(say, encode=CHAT.encode)
    done = play((), engine=engine, after=first.turns[:1])
    assert len(done.turns) == 2 and done.turns[0] is first.turns[0]
    (context,) = asked
    size = len(context)
    np.testing.assert_array_equal(context, first.token_ids[:size])
    assert CHAT.decode(done.turns[1].token_ids) == "\\boxed{5}" + END
    left = Limits(200, first.num_response_tokens, 4)
    assert play((), limits=left, engine=engine, after=first.turns[:1]).stop == "answer"


def test_tools_with_a_state_are_brought_to_where_the_other_episode_had_them():
    made = []

    @contextlib.asynccontextmanager
    async def opened():
        total = 0

        async def add(a: int, b: int) -> ToolResult:
            nonlocal total
            total += a + b
            made.append(total)
            return ToolResult(str(total), "ok")

        yield dataclasses.replace(TOOLS["add"], run=add)

    counting = {"add": dataclasses.replace(TOOLS["add"], open=opened)}
    first = play([CALL + END, CALL + END, "no" + END], tools=counting)
    assert [c.result.text for c in first.calls] == ["4", "8"]
    made.clear()
    engine = ScriptedEngine({"s": [CALL + END, "no" + END]}, encode=CHAT.encode)
    done = play((), engine=engine, after=first.turns[:1], tools=counting)
    assert [c.result.text for c in done.calls] == ["4", "8"] and made == [4, 8]


def test_a_turn_says_which_of_its_tokens_are_its_call():
    (turn, _) = play(["hm " + CALL + END, "no" + END]).turns
    ((start, end),) = turn.call_spans
    assert CHAT.decode(turn.token_ids[start:end]) == CALL
    assert CHAT.decode(turn.token_ids[:start]) == "hm "


def test_a_turn_has_the_entropy_of_its_first_tokens_where_it_is_told():
    assert play(["no" + END]).turns[0].entropy is None
    params = SamplingParams(max_tokens=1, top_logprobs=3)
    assert play(["no" + END], sampling=params).turns[0].entropy == 0.0
