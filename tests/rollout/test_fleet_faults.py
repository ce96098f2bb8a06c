import asyncio
import random

import pytest
from absl import logging

from agentic_jax.rollout.engine import EngineError, SamplingParams
from tests.rollout.fake_servers import FakeServer, expected, make_fleet, play

PROMPT = [5, 6, 7, 8, 9]


async def serving(fleet, count):
    while fleet.stats()["servers_in_service"] != count:
        await asyncio.sleep(0.001)


def generate(fleet, session="s", **options):
    params = SamplingParams(**{"max_tokens": 20, "seed": 3, **options})
    return fleet.generate(PROMPT, params, session=session)


async def play_all(fleet, count=12):
    async def one(i):
        done = await generate(fleet, session=f"s{i}", seed=i)
        await fleet.release(f"s{i}")
        return done

    return await asyncio.gather(*(one(i) for i in range(count)))


def whole(dones, version=1):
    """Each turn is there once, sampled by the one version."""
    assert [done.token_ids.tolist() for done in dones] == [
        expected(i, 5, 20) for i in range(len(dones))
    ]
    assert {done.weight_version for done in dones} == {version}
    return True


@pytest.mark.parametrize("how", ["error", "die", "hang", "old"])
def test_a_fault_costs_no_turn_and_doubles_none(how):
    servers = [FakeServer(name) for name in "ab"]

    async def main(fleet):
        await serving(fleet, 2)
        servers[0].plan = ["well", "well", how]
        return await play_all(fleet), fleet.stats()

    dones, stats = play(main, servers, max_attempts=4)
    assert whole(dones)
    assert stats["faults"] >= 1 and stats["retries"] >= 1
    assert stats["held_fraction"] == 0


def test_a_dead_server_is_asked_nothing_until_it_is_back_with_the_weights(caplog):
    logging.set_verbosity(logging.INFO)
    caplog.set_level("INFO", "absl")
    servers = [FakeServer(name) for name in "ab"]

    async def main(fleet):
        await serving(fleet, 2)
        servers[0].plan = ["die"]
        assert whole(await play_all(fleet))
        asked = len(servers[0].requests)
        assert whole(await play_all(fleet))
        assert len(servers[0].requests) == asked
        await fleet.update_weights("w", 2)
        servers[0].restart(version=None)
        await serving(fleet, 2)
        assert servers[0].version == 2 and servers[0].paths[-1] == "/weights/w-2"
        assert whole(await play_all(fleet), version=2)
        assert len(servers[0].requests) > asked
        return fleet.stats()

    assert play(main, servers)["rejoins"] == 1
    told = caplog.text
    for line in (
        "server http://a is out of service, 1 of 2 are left: http://a: die",
        "goes on from token 5, attempt 2 of 3: http://a: die",
        "server http://a cannot serve yet",
        "1 servers have weights 2",
        "server http://a is in service: 1000 tokens of cache, weights 2",
    ):
        assert line in told, line


def test_old_weights_are_replaced_before_a_server_comes_back():
    server = FakeServer()

    async def main(fleet):
        server.version = 0  # It has been restarted, and nobody has noticed.
        done = await generate(fleet)
        assert server.version == 1
        return done

    done = play(main, [server])
    assert done.weight_version == 1 and done.token_ids.tolist() == expected(3, 5, 20)


def test_a_server_that_fails_again_loads_its_weights_anew():
    server = FakeServer()

    async def main(fleet):
        server.plan = ["error", "well", "error"]  # The second answer is to a probe.
        return await generate(fleet)

    play(main, [server])
    assert server.paths == ["/weights/w-1"] * 2


def test_a_turn_fails_a_bounded_number_of_times():
    server = FakeServer()

    async def main(fleet):
        server.plan = ["error", "well"] * 3  # It answers each probe well.
        with pytest.raises(
            EngineError, match="3 requests of a turn .* failed: .*error"
        ):
            await generate(fleet)
        await fleet.release("s")
        return await generate(fleet)

    assert play(main, [server]).stop == "length"
    assert [prompt for _, prompt, _ in server.requests] == [5] * 4 + [13, 21]


def test_a_turn_goes_on_from_what_it_has():
    server = FakeServer()

    async def main(fleet):
        server.plan = ["well", "error"]
        return await generate(fleet)

    assert play(main, [server]).token_ids.tolist() == expected(3, 5, 20)
    assert [prompt for _, prompt, _ in server.requests] == [5, 13, 13, 21]


def test_a_turn_that_somebody_else_aborts_goes_on():
    server = FakeServer()

    async def main(fleet):
        server.plan = ["abort"]
        return await generate(fleet)

    assert play(main, [server]).token_ids.tolist() == expected(3, 5, 20)
    with pytest.raises(EngineError, match="somebody else aborts"):
        server.plan = ["well"] + ["abort"] * 9
        play(main_aborted, [server])


async def main_aborted(fleet):
    return await generate(fleet, max_tokens=100)


def test_a_wrong_request_is_not_repeated():
    class Refusing(FakeServer):
        async def _answer(self, token_ids, params, session, life):
            raise ValueError("refuses this: too long")

    server = Refusing()
    with pytest.raises(ValueError, match="too long"):
        play(generate, [server])
    assert len(server.requests) == 1


def test_a_server_that_fails_to_update_is_taken_out_not_left_behind():
    servers = [FakeServer(name) for name in "ab"]

    async def main(fleet):
        await serving(fleet, 2)
        servers[0].updates = False
        await fleet.update_weights("w", 2)
        assert fleet.stats()["servers_in_service"] == 1
        assert whole(await play_all(fleet), version=2)
        assert {s for s, _, _ in servers[1].requests} == {f"s{i}" for i in range(12)}
        servers[0].updates = True
        await serving(fleet, 2)

    play(main, servers)
    assert servers[0].requests == [] and servers[0].version == 2


def test_a_server_that_fails_every_request_does_not_come_back():
    servers = [FakeServer(name) for name in "ab"]

    async def main(fleet):
        await serving(fleet, 2)
        servers[0].plan = ["error"] * 1_000  # Though it calls itself healthy.
        assert whole(await play_all(fleet, 60))
        return fleet.stats()

    stats = play(main, servers)
    assert stats["rejoins"] == 0 and len(servers[0].requests) <= 40


def test_without_any_server_the_fleet_waits_and_goes_on():
    server = FakeServer()

    async def main(fleet):
        server.plan = ["die"]
        turn = asyncio.ensure_future(generate(fleet))
        await serving(fleet, 0)
        await asyncio.sleep(0.02)
        assert not turn.done()
        server.restart(version=1)
        return await turn

    assert play(main, [server]).token_ids.tolist() == expected(3, 5, 20)


def test_without_any_server_the_fleet_gives_up_after_a_while(caplog):
    server = FakeServer()

    async def main(fleet):
        server.plan = ["die"]
        ends = await asyncio.gather(
            *(generate(fleet, session=f"s{i}") for i in range(50)),
            return_exceptions=True,
        )
        assert {type(end) for end in ends} == {EngineError}
        with pytest.raises(EngineError, match="no server has been in service for 0.05"):
            await generate(fleet, session="late")
        with pytest.raises(EngineError, match="run the same command again"):
            await fleet.update_weights("w", 2)
        for i in range(50):
            await fleet.release(f"s{i}")
        server.restart(version=1)  # There is hope again.
        await serving(fleet, 1)
        return await generate(fleet)

    assert play(main, [server], wait_s=0.05).stop == "length"
    assert "no server is in service; waiting up to 0.05 s" in caplog.text


def test_servers_that_cannot_be_reached_at_the_start_end_the_run():
    server = FakeServer()
    server.alive = False
    with pytest.raises(EngineError, match="http://a is not healthy"):
        play(generate, [server], wait_s=0.03)


def test_a_server_too_small_for_one_trajectory_is_named():
    with pytest.raises(EngineError, match="holds 150 tokens.*may have 200"):
        play(generate, [FakeServer(capacity=150)], wait_s=0.03)


def test_an_idle_server_that_dies_is_noticed():
    servers = [FakeServer(name) for name in "ab"]

    async def main(fleet):
        await serving(fleet, 2)
        servers[0].alive = False
        await serving(fleet, 1)

    play(main, servers)


def test_an_error_of_ours_in_the_background_is_not_waited_for():
    class Broken(FakeServer):
        async def load(self):
            raise KeyError("ours")

    with pytest.raises(EngineError, match="the fleet broke: KeyError"):
        play(generate, [Broken()])


@pytest.mark.parametrize("seed", range(3))
def test_many_faults_at_random_lose_nothing(seed):
    rng = random.Random(seed)
    servers = [FakeServer(name) for name in "abc"]

    async def main(fleet):
        await serving(fleet, 3)
        for server in servers:
            server.plan = rng.choices(
                ["well", "error", "die", "hang", "old", "abort"],
                [30, 1, 1, 1, 1, 1],
                k=200,
            )

        async def revive():
            while True:
                await asyncio.sleep(0.02)
                for server in servers:
                    if not server.alive:
                        server.restart(version=rng.choice([None, 0, 1]))

        reviving = asyncio.ensure_future(revive())
        dones = await play_all(fleet, 60)
        reviving.cancel()
        return dones, fleet.stats()

    dones, stats = play(main, servers, max_attempts=50)
    assert whole(dones) and stats["faults"] > 0 and stats["held_fraction"] == 0
    assert all(server.most <= server.capacity for server in servers)


def test_make_fleet_needs_servers():
    with pytest.raises(ValueError, match="0 servers"):
        make_fleet([])
