"""Compares our functions with every golden file of a folder.

python -m tests.golden DIR
"""

import pathlib
import sys

import jax

from tests.golden.compare import report
from tests.golden.table import EXCLUDED, MAPPINGS


def main(argv: list[str]) -> int:
    if len(argv) != 1 or not pathlib.Path(argv[0]).is_dir():
        print("usage: python -m tests.golden DIR, a folder of *.json golden files")
        return 2
    with jax.enable_x64(True):
        lines, is_good = report(pathlib.Path(argv[0]), MAPPINGS, EXCLUDED)
    print("\n".join(lines))
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
