"""Checks that a slot function keeps the contract of docs/losses.md.

python -m agentic_jax.conformance surrogate clipped eps_low=0.2 eps_high=0.28
python -m agentic_jax.conformance surrogate my_module:my_surrogate
"""

import ast
import os
import sys

# Before jax starts: the device split needs 8 devices.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

from agentic_jax.conformance.checks import SLOTS, check  # noqa: E402


def main(argv: list[str]) -> int:
    """Prints what holds of SLOT FUNCTION [option=value ...]; 0 if all of it does."""
    if len(argv) < 2:
        print(f"usage: {__doc__}\nslots: {', '.join(SLOTS)}")
        return 2
    options = {}
    for word in argv[2:]:
        key, _, text = word.partition("=")
        try:
            options[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            options[key] = text
    failures = 0
    print(f"{argv[0]} {argv[1]}")
    for name, problem in check(argv[0], argv[1], options):
        failures += bool(problem)
        print(
            f"  {'FAIL' if problem else 'ok':<6}{name}{': ' * bool(problem)}{problem}"
        )
    print(f"{failures} of the properties do not hold" if failures else "all hold")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(str(error))
