"""Reads what a call left in its working directory, trusting nothing in it."""

import os
import stat
from collections.abc import Sequence

_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def read_files(
    directory: int, paths: Sequence[str], *, max_bytes: int
) -> dict[str, bytes]:
    """Contents of the plain files among `paths`, largest total first refused.

    Symbolic links are not followed, neither at the end nor on the way; devices,
    pipes and missing files are left out.

    Args:
        directory: descriptor of the working directory.
        paths: relative, without "..", as `check_path` returns them.
        max_bytes: of all files together; one that does not fit is left out.
    """
    found = {}
    for path in paths:
        try:
            data = _read(directory, path.split("/"), max_bytes)
        except OSError:  # Missing, a link, or closed to us: the code's doing.
            continue
        if data is not None:
            found[path] = data
            max_bytes -= len(data)
    return found


def _read(directory: int, parts: list[str], max_bytes: int) -> bytes | None:
    """The bytes of one file; None if it is not plain or does not fit."""
    opened = []
    try:
        for part in parts[:-1]:
            directory = os.open(part, _FLAGS | os.O_DIRECTORY, dir_fd=directory)
            opened.append(directory)
        file = os.open(parts[-1], _FLAGS | os.O_RDONLY, dir_fd=directory)
        opened.append(file)
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode) or about.st_size > max_bytes:
            return None
        with open(file, "rb", closefd=False) as reader:
            return reader.read(max_bytes)
    finally:
        for fd in opened:
            os.close(fd)
