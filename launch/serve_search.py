"""Serves BM25 over a passage file, in Search-R1's format.

python -m launch.serve_search --passages wiki.jsonl --port 8000
"""

import asyncio
import os
import signal

from absl import app, flags, logging

from agentic_jax.tools.passages import PassageIndex, read_passages
from agentic_jax.tools.retriever import serve

_PASSAGES = flags.DEFINE_string("passages", None, "JSON-lines file of passages.")
_HOST = flags.DEFINE_string("host", "127.0.0.1", "Address to listen on.")
_PORT = flags.DEFINE_integer("port", 8000, "Port; 0 takes a free one.", lower_bound=0)
_TOPK = flags.DEFINE_integer("topk", 3, "Passages of a request that does not say.")


async def _serve() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    index = PassageIndex(read_passages(_PASSAGES.value))
    runner = await serve(index, host=_HOST.value, port=_PORT.value, k=_TOPK.value)
    host, port = runner.addresses[0][:2]
    logging.info("%d passages on http://%s:%d/retrieve", len(index), host, port)
    print(f"listening on http://{host}:{port}", flush=True)
    await stop.wait()
    await runner.cleanup()


def main(argv):
    """Serves until SIGINT or SIGTERM."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    os.environ["JAX_PLATFORMS"] = "cpu"  # bm25s starts jax: it shall take no device.
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    asyncio.run(_serve())


if __name__ == "__main__":
    flags.mark_flag_as_required("passages")
    app.run(main)
