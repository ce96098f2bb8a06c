"""Peers that a benchmark alternates with, each in an environment of its own."""

import contextlib
import subprocess
from collections.abc import Iterator


class Peer:
    """A script that does its work once for each line, and prints the seconds it took.

    Args:
        python: of the environment that the script needs.
        script: its path, which says how that environment is made.
    """

    def __init__(self, python: str, script: str):
        self._process = subprocess.Popen(
            [python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._read("ready")

    def seconds(self, work: str) -> float:
        """How long the work took that the line asks for."""
        self._process.stdin.write(f"{work}\n")
        self._process.stdin.flush()
        return float(self._read("seconds"))

    def close(self) -> None:
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait()

    def _read(self, wanted: str) -> str:
        line = self._process.stdout.readline().strip()
        if not line:
            arguments = " ".join(self._process.args)
            raise RuntimeError(f"{arguments} ended before it said its {wanted}")
        return line


@contextlib.contextmanager
def open_peers(scripts: dict[str, tuple[str | None, str]]) -> Iterator[dict[str, Peer]]:
    """The peers by name, for each (python, script) whose Python is given."""
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(contextlib.closing(Peer(python, script)))
            for name, (python, script) in scripts.items()
            if python
        }
