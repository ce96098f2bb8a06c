import pytest

from agentic_jax.evaluation.pilot import quality_rows, traced_calls


def call(name, result):
    return {
        "call": {"name": name, "arguments": {"x": 1}, "problem": ""},
        "result": {"text": result, "status": "ok"},
    }


def row(entropies, calls, domain="math"):
    """One sampled token a turn, a letter each, with a tool's token "." between."""
    tokens = {
        "turn": [0] + [k + 1 for k in range(len(entropies)) for _ in "at"],
        "mask": [0] + [m for _ in entropies for m in (1, 0)],
        "entropy": [9.0] + [h for e in entropies for h in (e, 9.0)],
        "chars": [1] * (1 + 2 * len(entropies)),
    }
    return {
        "text": "?" + "".join(f"{chr(97 + k)}." for k in range(len(entropies))),
        "tokens": tokens,
        "turns": [{"calls": made} for made in calls],
        "task": {"domain": domain, "messages": [{"role": "user", "content": "Q"}]},
    }


# dH is -1 for the first call, +2 for the two of turn 2; the last turn's has no turn
# after it.
ROW = row(
    [2.0, 1.0, 3.0],
    [[call("p", "r1")], [call("p", "r2"), call("s", "r3")], [call("p", "r4")]],
)


def test_calls_of_a_trace_have_their_texts_and_changes():
    found = list(traced_calls([ROW]))
    assert [c.change for c in found] == [-1.0, 2.0, 2.0]
    assert [c.ratio for c in found] == pytest.approx([-0.5, 2.0, 2.0])
    assert [c.result for c in found] == ["r1", "r2", "r3"]
    assert [c.before for c in found] == ["a", "b", "b"]
    assert found[2].call == "s: {'x': 1}" and found[0].question == "Q"


def test_changes_are_averaged_by_verdict_and_domain():
    other = row([1.0, 0.5], [[call("s", "r")], []], domain="web")
    found = list(traced_calls([ROW, other]))
    table = quality_rows(found, [True, False, True, True], seed=0)
    cells = {(r[0], r[1]): r[2:] for r in table[1:]}
    assert cells["all", "useful"][0] == "3"
    assert cells["all", "useful"][1].startswith("+0.167 [")  # (-1 + 2 - 0.5) / 3
    assert cells["all", "useful"][2:] == ["+0.333", "0.67"]  # (-0.5 + 2 - 0.5) / 3
    assert cells["math", "useless"] == [
        "1",
        "+2.000 [+2.000, +2.000]",
        "+2.000",
        "0.00",
    ]
    assert cells["web", "useless"] == ["0", "", "", ""]
    assert len(quality_rows(found[:3], [True] * 3, seed=0)) == 3  # One domain is all.
    with pytest.raises(ValueError):
        quality_rows(found, [True], seed=0)
