"""What devices send one another in a compiled program, read from its text."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_BYTES = {"pred": 1, "bf": 2, "f": 1, "s": 1, "u": 1, "c": 1}
_KINDS = "all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute"
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) (?:\(.*\) -> .* )?\{$")
_COLLECTIVE = re.compile(rf" = (.*?) (?:ragged-)?({_KINDS})(-start)?\(")
_OPCODE = re.compile(r" = .*? ([a-z][\w-]*)\(")
_SHAPE = re.compile(r"\b(pred|[a-z]+\d+)[\w]*\[([\d,]*)\]")
_CALLED = re.compile(
    r"\b(calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.-]+)"
)
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'known_trip_count\\?"?:\s*\{\\?"n\\?":\\?"(\d+)')
_CONSTANT = re.compile(r"[su]32\[\](?:\{[^}]*\})? constant\((\d+)\)")


@dataclass
class _Computation:
    """One block of the text: what it sends itself, and what it calls how often."""

    sent: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    calls: list[tuple[str, str | int]] = field(default_factory=list)
    largest_constant: int = 1


def collective_bytes(hlo: str, *, num_devices: int) -> dict[str, float]:
    """Bytes that one device sends while the program runs once, by kind of collective.

    Loop bodies count as often as they run. A ring is assumed: of n devices each sends
    (n - 1) / n of a gathered or scattered array, and twice that of a reduced one.

    Args:
        hlo: text of the compiled module.
        num_devices: that run it; the group of collectives that name none.
    """
    blocks = dict(_computations(hlo, num_devices))
    sent: dict[str, float] = defaultdict(float)

    def visit(name: str, times: float) -> None:
        block = blocks.get(name)
        if block is None:
            return
        for kind, size in block.sent.items():
            sent[kind] += times * size
        for called, trips in block.calls:
            # A condition named in place of a count: the loop runs to its constant.
            count = trips if isinstance(trips, int) else blocks[trips].largest_constant
            visit(called, times * count)

    visit("ENTRY", 1.0)
    return dict(sent)


def _computations(hlo: str, num_devices: int) -> Iterator[tuple[str, _Computation]]:
    block, name = _Computation(), ""
    for line in hlo.splitlines():
        start = _COMPUTATION.match(line)
        if start:
            block = _Computation()
            name = "ENTRY" if start[1] else start[2]
        elif line.startswith("}"):
            yield name, block
        else:
            _read(line, block, num_devices)


def _read(line: str, block: _Computation, num_devices: int) -> None:
    for constant in _CONSTANT.findall(line):
        block.largest_constant = max(block.largest_constant, int(constant))
    found = _COLLECTIVE.search(line)
    if found:
        size = _group_size(line, num_devices)
        block.sent[found[2]] += _sent(
            found[2], _bytes(found[1]), size, is_start=bool(found[3])
        )
        return
    opcode = _OPCODE.search(line)
    if opcode is None or opcode[1].endswith(("-done", "-update")):
        return
    called = dict(_CALLED.findall(line))
    trips = _TRIPS.search(line)
    for how, callee in called.items():
        if how == "body":
            block.calls.append(
                (callee, int(trips[1]) if trips else called["condition"])
            )
        elif how != "condition":
            block.calls.append((callee, 1))
    for branches in _BRANCHES.findall(line):
        block.calls += [(b.strip().lstrip("%"), 1) for b in branches.split(",")]


def _sent(kind: str, size: float, n: int, *, is_start: bool) -> float:
    """Bytes one device sends, of an operation whose result has `size` bytes."""
    if kind == "collective-permute":
        return size / 2 if is_start else size  # A start returns its operand too.
    if kind == "all-gather" and is_start:
        size *= n / (n + 1)
    factor = {"all-reduce": 2 * (n - 1) / n, "reduce-scatter": n - 1}
    return size * factor.get(kind, (n - 1) / n)


def _bytes(shapes: str) -> float:
    """Of all arrays in a type."""
    total = 0.0
    for kind, dims in _SHAPE.findall(shapes):
        count = math.prod(int(d) for d in dims.split(",") if d)
        bits = 8 if kind == "pred" else int(re.sub(r"\D", "", kind))
        total += count * bits / 8 if dims else 0.0  # Scalars beside are flags.
    return total


def _group_size(line: str, num_devices: int) -> int:
    listed = re.search(r"replica_groups=\{\{([\d,]*)\}", line)
    if listed:
        return listed[1].count(",") + 1
    iota = re.search(r"replica_groups=\[(\d+),(\d+)\]", line)
    return int(iota[2]) if iota else num_devices


def total_bytes(sent: Mapping[str, float]) -> float:
    """Over all kinds."""
    return sum(sent.values())
