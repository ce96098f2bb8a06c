r"""Serves a model over HTTP with the routes of SGLang.

python -m launch.serve_engine --model=models/smollm2 --port=30000

Reads a Hugging Face directory, as `launch.convert` or a training run writes it,
compiles everything once, and then prints its address. Training runs and SGLang's
clients talk to it as to an SGLang server; `curl` does too:

    curl -s http://127.0.0.1:30000/v1/chat/completions \
        -d '{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 32}'
"""

import asyncio
import signal

from absl import flags, logging

from agentic_jax.rollout.serve import Service, serve
from agentic_jax.rollout.served import open_model
from launch import flags as shared

_MODEL = flags.DEFINE_string("model", None, "Hugging Face directory.")
_HOST = flags.DEFINE_string("host", "127.0.0.1", "Address to listen on.")
_PORT = flags.DEFINE_integer("port", 30_000, "Port; 0 takes a free one.", 0, 65_535)
_ROWS = flags.DEFINE_integer("rows", 16, "Sequences decoded at a time; others wait.", 1)
_LENGTH = flags.DEFINE_integer(
    "length", 2_048, "Most tokens of a sequence, prompt and response.", 2
)
_DTYPE = flags.DEFINE_enum(
    "dtype", "float32", ["float32", "bfloat16"], "Of weights, products and cache."
)
_DETERMINISTIC = flags.DEFINE_bool(
    "deterministic",
    False,
    "Answer each request with the same bits whatever else runs; slower.",
)
_WEIGHT_VERSION = flags.DEFINE_string(
    "weight_version", "default", "Label of the weights until the first update."
)
flags.adopt_module_key_flags(shared)


async def _serve() -> None:
    engine, model, params = open_model(
        _MODEL.value,
        rows=_ROWS.value,
        length=_LENGTH.value,
        dtype=_DTYPE.value,
        deterministic=_DETERMINISTIC.value,
    )
    service = Service(
        engine, model, params=params, weight_version=_WEIGHT_VERSION.value
    )
    del params  # The first update frees them.
    await engine.warm_up()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = await serve(service, host=_HOST.value, port=_PORT.value)
    host, port = runner.addresses[0][:2]
    logging.info("%s: %d rows of %d", _MODEL.value, _ROWS.value, _LENGTH.value)
    print(f"listening on http://{host}:{port}", flush=True)
    await stop.wait()
    await runner.cleanup()
    await engine.close()


def main(_: list[str]) -> None:
    """Serves until SIGINT or SIGTERM."""
    asyncio.run(_serve())


if __name__ == "__main__":
    flags.mark_flag_as_required("model")
    shared.run(main)
