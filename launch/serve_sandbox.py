"""Serves the code sandbox over HTTP.

python -m launch.serve_sandbox --port 8080 --workers 8
"""

import asyncio
import signal
import sys

from absl import app, flags, logging

from agentic_jax.sandbox.execution import Limits
from agentic_jax.sandbox.server import serve
from agentic_jax.sandbox.supervisor import Sandbox

_HOST = flags.DEFINE_string("host", "127.0.0.1", "Address to listen on.")
_PORT = flags.DEFINE_integer("port", 8080, "Port; 0 takes a free one.", lower_bound=0)
_WORKERS = flags.DEFINE_integer("workers", 8, "Calls at the same time.", lower_bound=1)
_MAX_QUEUE = flags.DEFINE_integer("max_queue", 65_536, "Calls that may wait.")
_MEMORY_MB = flags.DEFINE_integer("memory_mb", 512, "Default memory limit of a call.")
_PYTHON = flags.DEFINE_string("python", sys.executable, "Interpreter of the code.")
_TIERS = flags.DEFINE_list(
    "tiers", ["namespaces", "landlock"], "Kinds of isolation, the preferred first."
)
_ALLOW_UNSAFE = flags.DEFINE_bool(
    "allow_unsafe", False, "If none of them works, run code without isolation."
)


async def _serve() -> None:
    limits = Limits(memory_mb=_MEMORY_MB.value)
    sandbox = Sandbox(
        workers=_WORKERS.value,
        max_queue=_MAX_QUEUE.value,
        limits=limits,
        python=_PYTHON.value,
        tiers=_TIERS.value,
        allow_unsafe=_ALLOW_UNSAFE.value,
    )
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with sandbox:
        await sandbox.warm()
        runner = await serve(sandbox, host=_HOST.value, port=_PORT.value, limits=limits)
        host, port = runner.addresses[0][:2]
        logging.info("sandbox on http://%s:%d: %s", host, port, sandbox.health())
        print(f"listening on http://{host}:{port}", flush=True)
        await stop.wait()
        await runner.cleanup()


def main(argv):
    """Serves until SIGINT or SIGTERM."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    asyncio.run(_serve())


if __name__ == "__main__":
    app.run(main)
