import math
import random

import pytest

from agentic_jax.rollout.scheduler import (
    Claim,
    Ledger,
    admit,
    choose_server,
    expected_peak,
)


def claim(context, tokens, needed=None, order=0):
    needed = tokens - context if needed is None else needed
    return Claim(context, order, tokens, needed, f"s{context}")


@pytest.mark.parametrize(
    "held, count, growth, peak",
    [
        (0, 1, 100, 100 / math.e),  # From nothing: a exp(-a / 100) at a = 100.
        (50, 1, 100, 100 * math.exp(-0.5)),
        (100, 1, 100, 100),  # As long as the mean: more end than grow from now on.
        (300, 2, 100, 300),
        (100, 2, 100, 200 * math.exp(-0.5)),  # Twice (50, 1).
    ],
)
def test_the_expected_peak_is_the_greatest_value_of_the_decaying_line(
    held, count, growth, peak
):
    assert expected_peak(held, count, growth=growth) == pytest.approx(peak)
    line = (
        (held + count * t) * math.exp(-t / growth) for t in range(0, 10 * growth, 1)
    )
    assert max(line) == pytest.approx(peak, rel=1e-3)


@pytest.mark.parametrize(
    "free, needed, server",
    [
        ([5, 9, 7], 4, 1),
        ([5, 9, 9], 9, 1),
        ([5, 9, 7], 10, None),
        ([-1, -1], 0, None),
        ([], 0, None),
    ],
)
def test_the_server_with_the_most_free_tokens_is_chosen_if_they_are_enough(
    free, needed, server
):
    assert choose_server(free, needed) == server


def test_the_longest_goes_on_first_and_nobody_overtakes():
    queue = [claim(10, 15), claim(20, 60), claim(50, 55)]
    # 50 -> 55 costs 5 of 30; 20 -> 60 would cost 40; the short one must not overtake.
    assert admit(queue, 30, longest=100) == [queue[2]]
    assert admit(queue, 45, longest=100) == [queue[2], queue[1]]
    assert admit(queue, 50, longest=100) == queue[::-1]


def test_the_longest_uses_what_is_set_aside_for_it():
    assert admit([claim(100, 120)], -5, longest=100) == [claim(100, 120)]
    # 90 -> 120 outgrows the longest: 10 are free tokens, 20 were set aside.
    assert admit([claim(90, 120)], 10, longest=100) == [claim(90, 120)]
    assert admit([claim(90, 120)], 9, longest=100) == []


def test_what_a_tool_added_is_needed_too():
    late = claim(60, 70, needed=25)  # It holds 45 and a tool has answered 15 tokens.
    assert admit([late], 24, longest=100) == []
    assert admit([late], 25, longest=100) == [late]


def make(capacity=1_000, servers=1, length=100):
    ledger = Ledger(servers, length=length)
    for server in range(servers):
        ledger.open_server(server, capacity)
    return ledger


def test_a_session_stays_where_it_began_until_it_ends():
    ledger = make(servers=2)
    assert ledger.ask("a", context_tokens=10, tokens=20) == [("a", 0)]
    assert ledger.ask("b", context_tokens=10, tokens=20) == [("b", 1)]
    ledger.settle("a", 20)
    ledger.settle("b", 12)
    assert ledger.ask("b", context_tokens=30, tokens=40) == [("b", 1)]
    ledger.end("b")
    assert ledger.server_of("b") is None
    assert ledger.ask("b", context_tokens=10, tokens=20) == [("b", 1)]


def test_room_that_one_frees_goes_to_the_longest_that_waits():
    ledger = make(capacity=100)
    assert ledger.ask("first", context_tokens=60, tokens=80)
    assert ledger.ask("short", context_tokens=10, tokens=90) == []
    assert ledger.ask("long", context_tokens=40, tokens=90) == []
    assert ledger.end("first") == [("long", 0)]
    assert ledger.end("long") == [("short", 0)]


def test_a_session_that_ends_while_it_waits_is_forgotten():
    ledger = make(capacity=100)
    ledger.ask("first", context_tokens=60, tokens=80)
    ledger.ask("second", context_tokens=10, tokens=90)
    assert ledger.end("second") == []
    assert ledger.end("first") == []
    assert ledger.end("never seen") == []


def test_a_tool_result_does_not_put_a_session_before_the_longest():
    """Else neither could go on: the longest could, and is not first."""
    ledger = make(capacity=200)
    ledger.ask("a", context_tokens=50, tokens=60)
    ledger.ask("b", context_tokens=1, tokens=65)
    ledger.ask("c", context_tokens=1, tokens=40)
    assert [ledger.server_of(s) for s in "abc"] == [0, 0, 0]  # 165 held, 35 aside.
    assert ledger.ask("a", context_tokens=80, tokens=90) == []
    assert ledger.ask("b", context_tokens=65, tokens=75) == [("b", 0)]


def test_sessions_of_a_closed_server_go_elsewhere():
    ledger = make(servers=2)
    for name in "abcd":
        ledger.ask(name, context_tokens=10, tokens=20)
    assert {ledger.server_of(name) for name in "ac"} == {0}
    ledger.close_server(0)
    assert ledger.server_of("a") is None
    assert ledger.settle("a", 15) == []
    assert ledger.ask("a", context_tokens=15, tokens=25) == [("a", 1)]


def test_who_waits_on_a_closed_server_waits_for_any():
    ledger = make(capacity=100, servers=2)
    ledger.ask("long", context_tokens=50, tokens=60)
    ledger.ask("other", context_tokens=10, tokens=95)
    assert [ledger.server_of(s) for s in ("long", "other")] == [0, 1]
    ledger.ask("late", context_tokens=5, tokens=95)
    ledger.close_server(0)
    assert ledger.end("other") == [("late", 1)]
    ledger.close_server(1)
    assert ledger.open_server(1, 100) == []
    assert ledger.ask("long", context_tokens=60, tokens=70) == [("long", 1)]


def test_on_no_server_a_session_counts_by_its_context():
    ledger = make(capacity=200)
    for name, context, tokens in (("a", 50, 60), ("b", 1, 65), ("c", 1, 40)):
        ledger.ask(name, context_tokens=context, tokens=tokens)
    ledger.ask("a", context_tokens=80, tokens=90)  # It holds 60, and waits.
    ledger.close_server(0)
    ledger.ask("d", context_tokens=70, tokens=75)
    assert ledger.open_server(0, 200)[0] == ("a", 0)


def test_what_others_hold_is_not_given_away():
    ledger = make(capacity=200)
    ledger.set_others(0, 150)
    assert ledger.ask("a", context_tokens=10, tokens=90) == []
    assert ledger.set_others(0, 0) == [("a", 0)]


def test_the_expected_growth_counts_those_that_have_not_ended():
    ledger = make(capacity=10_000, length=1_000)  # The guess: one of 250 has ended.
    for name in "abc":
        ledger.ask(name, context_tokens=10, tokens=600)
    ledger.settle("a", 60)
    ledger.settle("b", 510)
    ledger.settle("c", 260)
    ledger.end("a")
    assert ledger.growth == pytest.approx((250 + 50 + 500 + 250) / 2, rel=2e-3)


@pytest.mark.parametrize(
    "context, tokens", [(10, 10), (10, 101), (-5, -6)], ids=["none", "long", "negative"]
)
def test_impossible_claims_are_refused(context, tokens):
    with pytest.raises(ValueError, match="session 'a' has"):
        make().ask("a", context_tokens=context, tokens=tokens)


def test_asking_twice_is_refused():
    ledger = make(capacity=100)
    ledger.ask("first", context_tokens=60, tokens=80)
    ledger.ask("a", context_tokens=10, tokens=90)
    with pytest.raises(ValueError, match="waiting: True"):
        ledger.ask("a", context_tokens=10, tokens=90)


def test_a_server_that_is_too_small_is_refused():
    with pytest.raises(ValueError, match="holds 99 tokens.*may have 100"):
        Ledger(1, length=100).open_server(0, 99)


@pytest.mark.parametrize("seed", range(20))
def test_no_server_is_overcommitted_and_everybody_ends(seed):
    """Random lives: whoever runs grows to its full grant, at any time."""
    rng = random.Random(seed)
    length, servers = 100, rng.choice([1, 3])
    capacity = rng.choice([100, 130, 450])
    ledger = make(capacity=capacity, servers=servers, length=length)
    final = {f"s{i}": rng.choice([12, 40, 100]) for i in range(60)}
    size = dict.fromkeys(final, 10)
    room, running = {}, []

    def act(grants):
        running.extend(grants)
        held = [0] * servers
        for name, _ in grants:
            room[name] = min(size[name] + 8, length)
        for name in room:
            home = ledger.server_of(name)
            held[home] += room[name]
        assert max(held) <= capacity

    def ask(name):
        act(
            ledger.ask(
                name, context_tokens=size[name], tokens=min(size[name] + 8, length)
            )
        )

    for name in final:
        ask(name)
    while final:
        assert running, "nobody can go on"
        name, server = running.pop(rng.randrange(len(running)))
        assert ledger.server_of(name) == server
        size[name] = min(room[name], final[name])
        room[name] = size[name]
        act(ledger.settle(name, size[name]))
        if size[name] < final[name] and rng.random() < 0.3:
            size[name] = min(size[name] + 5, final[name] - 1)  # A tool has answered.
        if size[name] == final[name]:
            del final[name], room[name]
            act(ledger.end(name))
        else:
            ask(name)
    assert ledger.held_fraction == 0
