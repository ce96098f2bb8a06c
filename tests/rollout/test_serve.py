import numpy as np
import pytest

from agentic_jax.rollout.engine import SamplingParams
from tests.rollout.asking import (
    FREE,
    PROMPT,
    generate,
    logprobs,
)
from tests.rollout.small_models import score


def test_an_answer_has_sglangs_fields_and_the_engines_tokens(run, call, served):
    engine, model, _ = served
    answer = generate(call, rid="mine")
    params = SamplingParams(8, seed=3)
    done = run(engine.generate(PROMPT, params, session="s"))
    run(engine.release("s"))
    assert answer["output_ids"] == done.token_ids.tolist()
    np.testing.assert_array_equal(np.float32(logprobs(answer)), done.logprobs)
    assert answer["text"] == model.texts.decode(done.token_ids, True)
    meta = answer["meta_info"]
    assert meta.pop("e2e_latency") > 0
    assert [x[1:] for x in meta.pop("output_token_logprobs")] == [
        [token_id, None] for token_id in answer["output_ids"]
    ]
    assert meta == {
        "id": "mine",
        "finish_reason": {"type": "length", "length": 8},
        "prompt_tokens": 5,
        "weight_version": "default",
        "completion_tokens": 8,
        "cached_tokens": 0,
        "input_token_logprobs": [],
        "output_token_logprobs_length": 8,
    }


def test_log_probabilities_are_those_of_the_score_step(call, served, paths):
    sampling = {**FREE, "temperature": 0.7}
    answer = generate(
        call,
        sampling_params=sampling,
        logprob_start_len=1,
        top_logprobs_num=3,
        return_text_in_logprobs=True,
    )
    meta, ids = answer["meta_info"], [*PROMPT, *answer["output_ids"]]
    inputs = meta["input_token_logprobs"]
    assert [x[1] for x in inputs] == PROMPT[1:] and inputs[0][0] is None
    assert inputs[1][2] == served[1].texts.decode(PROMPT[2:3], False)
    expected = score(paths[0], ids, temperature=1.0)[2:5]
    np.testing.assert_allclose([x[0] for x in inputs[1:]], expected, atol=1e-4)
    expected = score(paths[0], ids, temperature=0.7)[5:]
    np.testing.assert_allclose(logprobs(answer), expected, atol=1e-4)
    assert meta["input_top_logprobs"][0] is None
    assert len(meta["input_top_logprobs"]) == len(inputs)
    for (logprob, token_id, _), top in zip(
        meta["output_token_logprobs"], meta["output_top_logprobs"], strict=True
    ):
        assert len(top) == 3 and top[0][0] >= top[1][0] >= top[2][0]
        same = [x[0] for x in top if x[1] == token_id]
        np.testing.assert_allclose(same, [logprob] * len(same), atol=1e-4)


def test_prompts_are_scored_without_alternatives_too(call, paths):
    meta = generate(call, logprob_start_len=0)["meta_info"]
    expected = score(paths[0], PROMPT, temperature=1.0)[1:]
    found = [x[0] for x in meta["input_token_logprobs"][1:]]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert "input_top_logprobs" not in meta


def test_a_batch_is_answered_in_order_and_text_is_encoded(call, served):
    texts = served[1].texts
    batch = generate(
        call,
        input_ids=[PROMPT, PROMPT[:3], texts.encode("abc")],
        sampling_params=[{**FREE, "max_new_tokens": n} for n in (3, 2, 4)],
        rid=["x", "y", "z"],
    )
    assert [a["meta_info"]["id"] for a in batch] == ["x", "y", "z"]
    assert [len(a["output_ids"]) for a in batch] == [3, 2, 4]
    text = {"input_ids": None, "sampling_params": {**FREE, "max_new_tokens": 4}}
    assert generate(call, text="abc", **text)["output_ids"] == batch[2]["output_ids"]
    (alone,) = generate(call, text=["abc"], **text)
    assert alone["output_ids"] == batch[2]["output_ids"]


def test_what_stops_stays_in_the_ids_and_leaves_the_text(call, served):
    decode = served[1].texts.decode
    free = generate(call)["output_ids"]
    stop_id = free[3]
    end = free.index(stop_id) + 1
    stopping = {**FREE, "ignore_eos": False, "stop_token_ids": [stop_id]}
    for trim in (True, False):
        sampling = {**stopping, "no_stop_trim": not trim, "skip_special_tokens": False}
        answer = generate(call, sampling_params=sampling)
        assert answer["output_ids"] == free[:end]
        assert answer["text"] == decode(free[: end - trim], False)
        reason = {"type": "stop", "matched": stop_id}
        assert answer["meta_info"]["finish_reason"] == reason
    ignoring = {**stopping, "ignore_eos": True}  # That ignores all stop ids.
    assert generate(call, sampling_params=ignoring)["output_ids"] == free
    string = decode(free[4:6], False)
    sampling = {**FREE, "stop": string, "skip_special_tokens": False}
    answer = generate(call, sampling_params=sampling)
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": string}
    whole = decode(answer["output_ids"], False)
    assert string in whole and answer["text"] == whole[: whole.find(string)]


def test_the_models_end_of_sequence_stops_unless_ignored(call, served):
    (eos,) = served[1].texts.eos_token_ids
    sampling = {"max_new_tokens": 56, "temperature": 3.0}
    stopped = []
    for seed in range(12):
        one = {**sampling, "sampling_seed": seed}
        answer = generate(call, sampling_params=one)
        free = generate(call, sampling_params={**one, "ignore_eos": True})
        assert free["meta_info"]["completion_tokens"] == 56
        if eos in free["output_ids"]:
            end = free["output_ids"].index(eos) + 1
            assert answer["output_ids"] == free["output_ids"][:end]
            stopped.append(answer["meta_info"]["finish_reason"]["matched"])
    assert stopped and set(stopped) == {eos}


SOME = {"input_ids": PROMPT}
REFUSED = {
    "no prompt": ({}, "one of input_ids and text"),
    "two prompts": ({**SOME, "text": "a"}, "one of input_ids and text"),
    "not an object": ([1], "wanted a JSON object"),
    "an empty prompt": ({"input_ids": []}, "prompt is empty"),
    "no integers": ({"input_ids": [1, "a"]}, "input_ids is no list of integers"),
    "a flag": ({"input_ids": [True]}, "input_ids is no list of integers"),
    "an id beyond the words": ({"input_ids": [263]}, "vocabulary of 263"),
    "a huge id": ({"input_ids": [1 << 40]}, "beyond 31 bits"),
    "too long": ({"input_ids": [1] * 64}, "64 tokens"),
    "too many tokens": ({**SOME, "sampling_params": {"max_new_tokens": 60}}, "is 64"),
    "no tokens": ({**SOME, "sampling_params": {"max_new_tokens": 0}}, "is 0"),
    "a string": ({**SOME, "sampling_params": {"temperature": "1"}}, "wanted float"),
    "cold": ({**SOME, "sampling_params": {**FREE, "temperature": -1.0}}, "not -1.0"),
    "a penalty": ({**SOME, "sampling_params": {"min_p": 0.1}}, "min_p is not offered"),
    "a grammar": ({**SOME, "sampling_params": {"regex": "a"}}, "regex is not offered"),
    "several": ({**SOME, "sampling_params": {"n": 2}}, "n is not offered"),
    "a stream": ({**SOME, "stream": True}, "stream is not offered"),
    "unknown": ({**SOME, "lora_path": "a"}, "lora_path is not offered"),
    "stops": ({**SOME, "sampling_params": {"stop": [1]}}, "stop is"),
    "a list of rids": ({**SOME, "rid": ["a"]}, "rid lists 1 values"),
    "one rid": ({"input_ids": [[1], [2]], "rid": "a"}, "rid of a batch is a list"),
    "the same rid": ({"input_ids": [[1], [2]], "rid": ["a", "a"]}, "the same rid"),
    "tops": ({**SOME, "return_logprob": True, "top_logprobs_num": 99}, "0 to 20"),
    "a late start": ({**SOME, "logprob_start_len": 5}, "logprob_start_len is 5"),
    "one of a batch": (
        {"input_ids": [[1], [999]], "sampling_params": FREE},
        "vocabulary of 263",
    ),
}


@pytest.mark.parametrize("body, message", REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_or_not_offered_is_said(call, body, message):
    status, answer = call("/generate", body)
    assert status == 400 and message in answer["error"]["message"]


@pytest.mark.parametrize("body", [b"{", b"[" * 100_000, b"\xff\xfe", b"null"])
def test_bodies_that_are_no_json_objects_are_refused(call, body):
    status, answer = call("/generate", body)
    assert status == 400 and answer["error"]["message"]


def test_a_huge_body_is_refused(call):
    status, answer = call("/generate", b" " * ((64 << 20) + 1))
    assert status == 413 and answer["error"]["message"]


def test_a_huge_top_k_keeps_all(call):
    all_kept = generate(call)["output_ids"]
    for top_k in (0, -1, 1 << 40):
        answer = generate(call, sampling_params={**FREE, "top_k": top_k})
        assert answer["output_ids"] == all_kept


def test_a_later_turn_reuses_what_an_earlier_one_left(call):
    call("/flush_cache", {})
    prompt = [90 + i for i in range(20)]
    first = generate(call, input_ids=prompt)
    assert first["meta_info"]["cached_tokens"] == 0
    context = [*prompt, *first["output_ids"], 5, 6, 7]
    for _ in range(2):  # Other prompts take the row that was used longest ago.
        generate(call, input_ids=[60, 61])
    later = generate(call, input_ids=context)
    assert later["meta_info"]["cached_tokens"] == 19
    again = generate(call, input_ids=[*context, 8])
    assert again["meta_info"]["cached_tokens"] == len(context) - 1
    assert call("/flush_cache", {}) == (200, "the cache is empty\n")
    assert generate(call, input_ids=context)["meta_info"]["cached_tokens"] == 0


def test_a_chat_is_rendered_by_the_template(call, served):
    messages = [{"role": "user", "content": "hi"}]
    function = {"name": "add", "parameters": {"properties": {"a": {}}}}
    tools = [{"type": "function", "function": function}]
    body = {"messages": messages, "max_tokens": 6, "seed": 3, "ignore_eos": True}
    status, answer = call("/v1/chat/completions", {**body, "model": "m"})
    assert status == 200
    prompt = served[1].texts.render(messages, None)
    sampling = {**FREE, "max_new_tokens": 6}
    same = generate(call, input_ids=prompt, sampling_params=sampling)
    (choice,) = answer["choices"]
    content = {"role": "assistant", "content": same["text"], "tool_calls": None}
    assert choice["message"] == content
    assert choice["finish_reason"] == "length" and answer["model"] == "m"
    usage = answer["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len(prompt), 6)
    assert usage["total_tokens"] == len(prompt) + 6
    longer = served[1].texts.render(messages, tools)
    assert "add(a)" in served[1].texts.decode(longer, False)
    assert len(longer) > len(prompt)
    for wrong, message in (
        ({"stream": True}, "stream is true"),
        ({"messages": []}, "empty one"),
        ({"messages": [{"content": "a"}]}, "has no role"),
        ({"messages": [{"role": "user", "content": [1]}]}, "only text"),
        ({"response_format": {"type": "json_object"}}, "response_format is not"),
        ({"tools": {}}, "tools is of type dict"),
    ):
        status, answer = call("/v1/chat/completions", {**body, **wrong})
        assert status == 400 and message in answer["error"]["message"]
