import asyncio

import numpy as np
import pytest

from agentic_jax.rollout.engine import EngineError, SamplingParams
from tests.rollout.fake_servers import FakeServer, expected, make_fleet, play, token_at

PROMPT = [5, 6, 7, 8, 9]


async def serving(fleet, count):
    while fleet.stats()["servers_in_service"] != count:
        await asyncio.sleep(0.001)


def generate(fleet, prompt=PROMPT, session="s", **options):
    params = SamplingParams(**{"max_tokens": 20, "seed": 3, **options})
    return fleet.generate(prompt, params, session=session)


def test_a_turn_cut_into_slices_is_the_turn():
    server = FakeServer()
    done = play(generate, [server])
    assert done.token_ids.tolist() == expected(3, 5, 20)
    assert done.token_ids.dtype == np.int32 and done.logprobs.dtype == np.float32
    np.testing.assert_array_equal(done.logprobs, -done.token_ids)
    assert (done.stop, done.weight_version) == ("length", 1)
    assert server.requests == [("s", 5, 8), ("s", 13, 8), ("s", 21, 4)]


def test_a_stop_id_ends_the_turn_in_its_slice():
    server = FakeServer()
    tenth = token_at(3, 5 + 9)
    done = play(lambda f: generate(f, stop_token_ids=(tenth,)), [server])
    assert done.token_ids.tolist() == expected(3, 5, 10) and done.stop == "stop"
    assert len(server.requests) == 2


def test_a_stop_string_over_two_slices_ends_the_turn():
    def decode(ids):
        return "".join(chr(200 + i) for i in ids)

    spanning = decode(expected(3, 5, 20)[6:10])  # Tokens 6, 7 | 8, 9 of the turn.
    done = play(
        lambda f: generate(f, stop_strings=(spanning,)), [FakeServer()], decode=decode
    )
    assert done.token_ids.tolist() == expected(3, 5, 10) and done.stop == "stop"
    assert len(done.logprobs) == 10


@pytest.mark.parametrize(
    "prompt, options, message",
    [
        ([], {}, "empty"),
        (PROMPT, {"max_tokens": 0}, "max_tokens is 0"),
        (PROMPT, {"max_tokens": 196}, "5 tokens and max_tokens 196 need 201.*200"),
        (PROMPT, {"stop_strings": ("x",)}, "decode"),
    ],
)
def test_impossible_requests_are_value_errors(prompt, options, message):
    with pytest.raises(ValueError, match=message):
        play(lambda f: generate(f, prompt, **options), [FakeServer()])


@pytest.mark.parametrize("name", ["slice_tokens", "max_attempts", "wait_s", "check_s"])
def test_sizes_and_times_are_positive(name):
    with pytest.raises(ValueError, match=f"{name} is 0"):
        make_fleet([FakeServer()], **{name: 0})


def test_sessions_spread_over_servers_and_stay_there():
    servers = [FakeServer(name) for name in "abc"]

    async def main(fleet):
        await serving(fleet, 3)

        async def one(i):
            context = PROMPT
            for _ in range(3):
                done = await generate(fleet, context, session=f"s{i}", max_tokens=10)
                context = [*context, *done.token_ids, 1, 2, 3]
            await fleet.release(f"s{i}")

        await asyncio.gather(*(one(i) for i in range(9)))
        return fleet.stats()

    stats = play(main, servers)
    for server in servers:
        assert len({session for session, _, _ in server.requests}) == 3
        assert len(server.requests) == 3 * 3 * 2
        assert sorted(server.released) == sorted(
            {session for session, _, _ in server.requests}
        )
    assert stats["held_fraction"] == 0
    assert stats["sampled_tokens"] == 9 * 3 * 10
    assert (stats["finished_requests"], stats["slices"]) == (27, 54)


@pytest.mark.parametrize("capacity", [200, 430])
def test_no_server_is_overcommitted_whatever_arrives(capacity):
    servers = [FakeServer(name, capacity=capacity) for name in "ab"]

    async def main(fleet):
        async def one(i):
            session = f"s{i}"
            context = list(range(1, 10 + i % 7))
            for k in range(3):
                done = await generate(
                    fleet, context, session=session, max_tokens=10 + i % 40, seed=k
                )
                context = [*context, *done.token_ids]
            await fleet.release(session)
            return len(context)

        return await asyncio.gather(*(one(i) for i in range(40)))

    sizes = play(main, servers)
    assert sizes == [9 + i % 7 + 3 * (10 + i % 40) for i in range(40)]
    assert all(0 < server.most <= capacity for server in servers)


def test_a_tool_call_keeps_nobody_waiting():
    """While ten sessions wait for their tools, ten others run."""

    async def main(fleet):
        for i in range(10):
            await generate(fleet, session=f"idle{i}", max_tokens=8)
        return await asyncio.gather(*(generate(fleet, session=str(i)) for i in "123"))

    assert len(play(main, [FakeServer()])) == 3


def test_what_others_hold_on_a_server_is_left_to_them():
    busy, free = FakeServer("busy"), FakeServer("free")
    busy.others = 950

    async def main(fleet):
        await serving(fleet, 2)
        await asyncio.sleep(0.05)  # Several reports.
        for i in range(6):
            await generate(fleet, session=str(i))

    play(main, [busy, free])
    assert busy.requests == [] and len(free.requests) == 18


def test_weights_reach_all_servers_at_once_with_their_version():
    servers = [FakeServer(name) for name in "ab"]

    async def main(fleet):
        await serving(fleet, 2)
        for server in servers:
            server.update_gate.clear()
            server.updating.clear()
        update = asyncio.ensure_future(fleet.update_weights("w", 2))
        for server in servers:  # Neither waits for the other to finish.
            await server.updating.wait()
        turn = asyncio.ensure_future(generate(fleet))
        await asyncio.sleep(0.01)
        assert not turn.done()
        for server in servers:
            server.update_gate.set()
        await update
        return await turn

    assert play(main, servers).weight_version == 2
    assert [server.paths[-1] for server in servers] == ["/weights/w-2"] * 2


def test_an_update_waits_for_turns_that_run_and_new_ones_wait_for_it():
    server = FakeServer()

    async def main(fleet):
        server.gate.clear()
        old = asyncio.ensure_future(generate(fleet, session="old"))
        while not server.running:
            await asyncio.sleep(0)
        update = asyncio.ensure_future(fleet.update_weights("w", 2))
        await asyncio.sleep(0.02)
        new = asyncio.ensure_future(generate(fleet, session="new"))
        await asyncio.sleep(0.02)
        assert not update.done() and len(server.requests) == 1
        server.gate.set()
        await update
        return await old, await new

    old, new = play(main, [server])
    assert (old.weight_version, new.weight_version) == (1, 2)
    assert len(old.token_ids) == 20


def test_a_turn_that_waits_for_room_starts_again_on_new_weights():
    server = FakeServer(capacity=300)

    async def main(fleet):
        first = await generate(fleet, session="long", max_tokens=100)
        await generate(fleet, list(range(1, 40)), session="other", max_tokens=4)
        # 105 and 43 are held and 95 set aside, so 57 are free: enough to grow by 44 to
        # 79 + 8 tokens, then by 8, and not by 8 more.
        stuck = asyncio.ensure_future(
            generate(fleet, list(range(1, 80)), session="other", max_tokens=60)
        )
        while server.requests[-1] != ("other", 87, 8) or server.running:
            await asyncio.sleep(0)
        await fleet.update_weights("w", 2)
        assert not stuck.done()
        context = [*PROMPT, *first.token_ids]
        await generate(fleet, context, session="long", max_tokens=8)
        await fleet.release("long")
        return await stuck, fleet.stats()

    stuck, stats = play(main, [server])
    assert stuck.weight_version == 2 and stats["restarted_turns"] == 1
    assert stuck.token_ids.tolist() == expected(3, 79, 60)
    assert server.requests.count(("other", 79, 8)) == 2


def test_releasing_a_session_ends_its_request():
    server = FakeServer()

    async def main(fleet):
        server.gate.clear()
        turn = asyncio.ensure_future(generate(fleet))
        while not server.running:
            await asyncio.sleep(0)
        await fleet.release("s")
        server.gate.set()
        return await turn, fleet.stats()

    done, stats = play(main, [server])
    assert done.stop == "abort" and len(done.token_ids) == 4
    assert stats["held_fraction"] == 0


def test_releasing_a_session_that_waits_ends_its_request():
    async def main(fleet):
        await generate(fleet, session="long", max_tokens=150)
        turn = asyncio.ensure_future(generate(fleet, session="s"))
        await asyncio.sleep(0.01)
        await fleet.release("s")
        return await turn

    done = play(main, [FakeServer(capacity=200)])
    assert done.stop == "abort" and len(done.token_ids) == 0


def test_a_cancelled_request_frees_its_room():
    async def main(fleet):
        await generate(fleet, session="long", max_tokens=150)
        turn = asyncio.ensure_future(generate(fleet, session="s"))
        await asyncio.sleep(0.01)
        turn.cancel()
        await asyncio.gather(turn, return_exceptions=True)
        await fleet.release("long")
        return await generate(fleet, session="s"), fleet.stats()

    done, stats = play(main, [FakeServer(capacity=200)])
    assert done.stop == "length"


def test_a_session_has_one_request_at_a_time():
    async def main(fleet):
        await asyncio.gather(generate(fleet), generate(fleet))

    with pytest.raises(ValueError, match="'s' has a request already"):
        play(main, [FakeServer()])


def test_first_weights_are_published_when_nobody_else_does():
    server = FakeServer()

    async def main():
        fleet = make_fleet([server], params="first")
        dones = await asyncio.gather(
            *(generate(fleet, session=str(i)) for i in range(3))
        )
        await fleet.close()
        return dones

    assert {done.weight_version for done in asyncio.run(main())} == {0}
    assert server.paths == ["/weights/first-0"] and server.closed


def test_a_closed_fleet_raises_and_ends_what_waits_and_runs():
    server = FakeServer()

    async def main():
        fleet = make_fleet([server], params="w")
        await generate(fleet, session="long", max_tokens=100)
        server.gate.clear()
        turns = [
            asyncio.ensure_future(generate(fleet, session=str(i), max_tokens=100))
            for i in range(9)
        ]
        while not server.running:
            await asyncio.sleep(0)
        await fleet.close()
        ends = await asyncio.gather(*turns, return_exceptions=True)
        assert all(isinstance(end, EngineError) for end in ends)
        with pytest.raises(EngineError, match="closed"):
            await fleet.update_weights("w", 2)
        with pytest.raises(EngineError, match="closed"):
            await generate(fleet)

    asyncio.run(asyncio.wait_for(main(), 10))
