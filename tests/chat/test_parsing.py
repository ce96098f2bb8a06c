import json

import pytest

from agentic_jax.chat.parsing import parse_calls
from agentic_jax.trajectory import ToolCall


def hermes(*bodies: str) -> tuple[ToolCall, ...]:
    text = "".join(f"<tool_call>\n{body}\n</tool_call>\n" for body in bodies)
    return parse_calls(text, format="hermes").calls


def python(code: str) -> ToolCall:
    return ToolCall("python", {"code": code})


def test_a_raw_newline_inside_a_string_is_taken_as_written():
    body = '{"name": "python", "arguments": {"code": "x = 1\nprint(x)"}}'
    with pytest.raises(json.JSONDecodeError):
        json.loads(body)
    assert hermes(body) == (python("x = 1\nprint(x)"),)


@pytest.mark.parametrize(
    "body, name, reason",
    [
        ('{"arguments": {"a": 3, "b": 4}}', "", '"name"'),
        ('{"name": "multiply"}', "multiply", '"arguments"'),
        ('{"name": "multiply", "arguments": "3"}', "multiply", '"arguments"'),
        ('{"name": 3, "arguments": {}}', "", '"name"'),
        ("{}", "", '"name"'),
        ("[1, 2]", "", "JSON object"),
        ('"hi"', "", "JSON object"),
        ("null", "", "JSON object"),
        ("", "", "not JSON"),
        ("{'name': 'python'}", "", "not JSON"),
        ('{"name": "python", "arguments": {"code": "1"}', "", "not JSON"),
        ('{"name": "a", "arguments": {}} and more', "", "text after"),
        ('{"name": "a", "arguments": {"x": "\\ud800"}}', "", "surrogate"),
        ('{"name": "a", "arguments": {"x": ' + "9" * 5000 + "}}", "", "too long"),
        ("[" * 100_000, "", "too deep"),
    ],
)
def test_a_malformed_call_tells_the_model_why(body, name, reason):
    (call,) = hermes(body)
    assert (call.name, call.arguments) == (name, None)
    assert reason in call.problem


def test_an_unknown_tool_is_a_call_like_any_other():
    body = '{"name": "pyhton", "arguments": {"code": "1"}}'
    assert hermes(body) == (ToolCall("pyhton", {"code": "1"}),)


def test_calls_keep_their_order_when_one_is_malformed():
    good = '{"name": "python", "arguments": {"code": "%d"}}'
    first, second, third = hermes(good % 1, '{"name"', good % 3)
    assert (first, third) == (python("1"), python("3"))
    assert second.problem.startswith("Malformed call")
    parsed = parse_calls("<tool_call>{</tool_call>", format="hermes")
    assert parsed.problems == (parsed.calls[0].problem,)


def test_a_call_without_its_closing_tag_is_no_call():
    for text in (
        'so <tool_call>{"name":"py',
        '<tool_call>{"name":"python","arguments":{"code":"1"}}',
        '<tool_call>{"name":"python","arguments":{"code":"1"}}</tool',
        "<tool_call>",
    ):
        assert parse_calls(text, format="hermes").calls == ()


def test_tags_inside_a_string_are_code():
    code = 'print("</tool_call><tool_call><think>")'
    assert hermes(json.dumps({"name": "python", "arguments": {"code": code}})) == (
        python(code),
    )


def test_arguments_are_data_and_are_never_evaluated(tmp_path):
    attack = f'__import__("os").system("touch {tmp_path}/pwned")'
    for value in (attack, [attack], {"x": attack}):
        body = json.dumps({"name": "array", "arguments": {"items": value}})
        assert hermes(body)[0].arguments == {"items": value}
        hermes(attack)
    assert list(tmp_path.iterdir()) == []


def test_calls_in_thinking_are_not_executed():
    call = '<tool_call>{"name":"python","arguments":{"code":"%d"}}</tool_call>'
    text = f"<think>{call % 1}</think>{call % 2}<think>{call % 3}</think>{call % 4}"
    assert parse_calls(text, format="hermes").calls == (python("2"), python("4"))
    assert parse_calls(f"<think>hm {call % 1}", format="hermes").calls == ()


def test_text_without_tags_has_no_calls():
    for format in ("hermes", "llama3", "tagged_search"):
        assert parse_calls("The answer is \\boxed{4}.", format=format).calls == ()


def test_llama3_calls_are_the_whole_turn():
    one = '{"name": "python", "parameters": {"code": "1\n"}}'
    two = '{"name": "search", "parameters": {}}'
    calls = parse_calls(f"<|python_tag|>{one}; {two}", format="llama3").calls
    assert calls == (python("1\n"), ToolCall("search", {}))
    assert parse_calls(f"Well: {one}", format="llama3").calls == ()
    for bad, reason in [
        (one + two, "text after"),
        (one[:-4], "not JSON"),
        ('{"name": "python"}', '"parameters"'),
    ]:
        (call,) = parse_calls(bad, format="llama3").calls
        assert reason in call.problem


def test_tagged_search_calls():
    text = "<search> capital of Peru </search><python>\n1+1\n</python><search></search>"
    calls = parse_calls(text + "<search>cut", format="tagged_search").calls
    assert calls[:2] == (
        ToolCall("search", {"query": "capital of Peru"}),
        python("1+1"),
    )
    assert len(calls) == 3 and "empty" in calls[2].problem


def test_an_unknown_format_is_named():
    with pytest.raises(ValueError, match="'hermse'.*hermes"):
        parse_calls("", format="hermse")


HERMES = ["<tool_call>{}</tool_call>", "<tool_call>3</tool_call>"]
TAGGED = ["<search>q</search>", "<python></python>"]


@pytest.mark.parametrize(
    "text, format, pieces",
    [
        ("a <tool_call>{}</tool_call>b<tool_call>3</tool_call>", "hermes", HERMES),
        ("x<search>q</search>y<python></python>", "tagged_search", TAGGED),
        (' {"name": "f", "parameters": {}} ', "llama3", []),
    ],
)
def test_spans_hold_each_call_with_its_tags(text, format, pieces):
    found = parse_calls(text, format=format)
    assert [text[a:b] for a, b in found.spans] == (pieces or [text])
    assert len(found.calls) == len(found.spans)
