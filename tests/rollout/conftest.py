"""A small server in this process."""

import asyncio

import pytest

from agentic_jax.rollout.serve import Service, serve
from agentic_jax.rollout.served import open_model
from tests.rollout.asking import (
    SIZES,
    ask,
)
from tests.rollout.small_engines import ENGINES, make_params
from tests.rollout.small_models import write_model


@pytest.fixture(scope="module")
def run():
    loop = asyncio.new_event_loop()
    yield loop.run_until_complete
    loop.close()


@pytest.fixture(scope="module")
def params():
    """Parameters of small_engines.CONFIG."""
    return make_params(0)


@pytest.fixture(scope="module", autouse=True)
def close_engines():
    """Ends what small_engines opened."""
    yield
    for engine in ENGINES.values():
        asyncio.run(engine.close())
    ENGINES.clear()


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    wide = write_model(path / "wide", width=64)
    return write_model(path / "a"), write_model(path / "b", seed=1), wide


@pytest.fixture(scope="module")
def served(run, paths):
    """Engine, Served and url of a server of the first model."""

    async def start():
        engine, model, params = open_model(paths[0], **SIZES)
        service = Service(engine, model, params=params, weight_version="default")
        return engine, model, await serve(service, host="127.0.0.1", port=0)

    engine, model, runner = run(start())
    host, port = runner.addresses[0][:2]
    yield engine, model, f"http://{host}:{port}"
    run(runner.cleanup())
    run(engine.close())


@pytest.fixture
def call(run, served):
    """call(route, body) -> status and JSON or text; without a body it is a GET."""
    return lambda route, body=None: run(ask(served[2], route, body))
