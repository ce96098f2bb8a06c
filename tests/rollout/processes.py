"""Servers in processes of their own, for tests."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).parent.parent.parent


@contextlib.contextmanager
def serve_engine(model, *flags, seconds=180):
    """The url of a `launch.serve_engine` that has said that it is ready."""
    environment = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "",
    }
    command = [sys.executable, "-m", "launch.serve_engine", f"--model={model}", *flags]
    with _process([*command, "--port=0"], environment) as (process, log):

        def address():
            said = [x for x in log().splitlines() if x.startswith("listening on ")]
            return said[0].removeprefix("listening on ") if said else None

        yield _wait(address, process, log, seconds=seconds)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log()


@contextlib.contextmanager
def serve_sglang(python, model, *flags, seconds=500):
    """The url of a real SGLang server, of the environment that `python` is of."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = str(ROOT / "tests" / "sglang" / "server.py")
    command = [str(python), script, f"--model-path={model}", f"--port={port}", *flags]
    url = f"http://127.0.0.1:{port}"
    with _process(command, dict(os.environ)) as (process, log):

        def address():
            with contextlib.suppress(urllib.error.URLError, OSError):
                with urllib.request.urlopen(f"{url}/health", timeout=30) as answer:
                    return url if answer.status == 200 else None

        yield _wait(address, process, log, seconds=seconds)


@contextlib.contextmanager
def _process(command, environment):
    """A process in a group of its own, and a function that reads what it printed."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

        def log():
            output.seek(0)
            return output.read().decode("utf-8", "replace")

        try:
            yield process, log
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # With all that it started.
            process.wait()


def _wait(address, process, log, *, seconds):
    deadline = time.monotonic() + seconds
    while (url := address()) is None:
        assert process.poll() is None, log()
        assert time.monotonic() < deadline, log()
        time.sleep(0.1)
    return url
