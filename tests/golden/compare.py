"""Runs golden cases through the mapping table and compares every output key."""

import fnmatch
import json
import math
import pathlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Mapping_ = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Excluded:
    """An output key that is not compared, and why.

    `where` names cases by a shell pattern; `when` narrows it to cases with a property.
    """

    file: str
    case: str
    key: str
    reason: str
    when: Callable[[dict[str, Any]], bool] = lambda case: True

    def holds(self, file: str, case: dict[str, Any], key: str) -> bool:
        return (
            file == self.file
            and fnmatch.fnmatchcase(case["name"], self.case)
            and fnmatch.fnmatchcase(key, self.key)
            and self.when(case)
        )


@dataclass(frozen=True)
class Partly:
    """A value of which only some entries are meant to match.

    `rest_is_zero` says that the others must be 0; `rtol` and `atol`, if given, replace
    the tolerances of the file, for keys that a reference made in float32.
    """

    value: Any
    compared: np.ndarray
    reason: str
    rest_is_zero: bool = True
    rtol: float | None = None
    atol: float | None = None


def report(
    folder: pathlib.Path,
    mappings: Mapping[str, Mapping_],
    excluded: Sequence[Excluded],
) -> tuple[list[str], bool]:
    """Lines to print, and whether nothing failed and nothing is unaccounted for."""
    head = f"{'file':<26}{'pass':>6}{'fail':>6}{'excluded':>10}{'not mapped':>12}"
    lines, problems, used, total = [head], [], Counter(), Counter()
    files = sorted(folder.glob("*.json"))
    if not files:
        return [f"no *.json file in {folder}"], False
    for path in files:
        content = json.loads(path.read_text())
        counts = Counter()
        for case in content["cases"]:
            verdict, notes = _judge(
                path.stem, case, content["meta"], mappings, excluded, used
            )
            counts[verdict] += 1
            problems += [f"{path.stem}/{case['name']}: {note}" for note in notes]
        total += counts
        lines.append(_row(path.stem, counts))
    lines.append(_row("total", total))
    lines += ["", "Not compared, and why (number of keys):"]
    lines += [f"  {count:>4}  {reason}" for reason, count in used.items()]
    if problems:
        lines += ["", "Problems:", *(f"  {problem}" for problem in problems)]
    return lines, not (total["fail"] or total["not mapped"])


def _row(name: str, counts: Counter) -> str:
    columns = [counts[k] for k in ("pass", "fail", "excluded", "not mapped")]
    return "{:<26}{:>6}{:>6}{:>10}{:>12}".format(name, *columns)


def _judge(
    file: str,
    case: dict[str, Any],
    meta: dict[str, Any],
    mappings: Mapping[str, Mapping_],
    excluded: Sequence[Excluded],
    used: Counter,
) -> tuple[str, list[str]]:
    """The verdict on one case, and what is wrong with it."""
    if file not in mappings:
        return "not mapped", [f"no mapping for file {file}.json"]
    case = _decode(case)
    try:
        ours = dict(leaves(mappings[file](case)))
    except (KeyError, ValueError, TypeError, LookupError) as error:
        return "not mapped", [f"{type(error).__name__}: {error}"]
    notes, compared, unmapped = [], 0, False
    outputs = dict(leaves(case["outputs"]))
    for key, theirs in outputs.items():
        rule = next((e for e in excluded if e.holds(file, case, key)), None)
        if rule:
            used[f"{file} {rule.key}: {rule.reason}"] += 1
        elif key not in ours:
            unmapped = True
            notes.append(f"{key} is neither computed nor excluded")
        elif "WRONG_" in key:
            compared += 1
            right = ours[key]
            if is_close(right, theirs, meta) and not _coincides(outputs, theirs, meta):
                notes.append(f"{key} is matched, but it is what a known bug gives")
        else:
            compared += 1
            notes += _differences(key, ours[key], theirs, meta)
            if isinstance(ours[key], Partly) and not ours[key].compared.all():
                used[f"{file} {key} in part: {ours[key].reason}"] += 1
    if unmapped:
        return "not mapped", notes
    if notes:
        return "fail", notes
    return ("pass" if compared else "excluded"), []


def _coincides(outputs: dict[str, Any], wrong: Any, meta: dict[str, Any]) -> bool:
    """Whether the bug happens to give a right value of this very case."""
    return any(
        is_close(value, wrong, meta)
        for key, value in outputs.items()
        if "WRONG_" not in key
    )


def _differences(key: str, ours: Any, theirs: Any, meta: dict[str, Any]) -> list[str]:
    if isinstance(ours, Partly):
        mine, reference = np.asarray(ours.value), np.asarray(theirs, float)
        if ours.rest_is_zero and mine[~ours.compared].any():
            return [f"{key}: entries that must be 0 are not"]
        if ours.rtol is not None:
            meta = {"rtol": ours.rtol, "atol": ours.atol}
        ours, theirs = mine[ours.compared], reference[ours.compared]
    if is_close(ours, theirs, meta):
        return []
    return [f"{key}: ours {_short(ours)}, reference {_short(theirs)}"]


def is_close(ours: Any, theirs: Any, meta: dict[str, Any]) -> bool:
    """Same structure, and numbers within the tolerances of the file."""
    return _same(_plain(ours), _plain(theirs), meta["rtol"], meta["atol"])


def _same(ours: Any, theirs: Any, rtol: float, atol: float) -> bool:
    if isinstance(theirs, list) and isinstance(ours, list):
        pairs = zip(ours, theirs, strict=False)
        return len(ours) == len(theirs) and all(
            _same(mine, reference, rtol, atol) for mine, reference in pairs
        )
    numbers = (bool, int, float)
    if isinstance(theirs, numbers) and isinstance(ours, numbers):
        return _near(float(ours), float(theirs), rtol, atol)
    return type(ours) is type(theirs) and ours == theirs


def _plain(value: Any) -> Any:
    """Arrays and sequences as nested lists of Python numbers."""
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    return value.tolist() if hasattr(value, "tolist") else value


def leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """("a.b", value) of nested dicts; an empty dict is a leaf."""
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from leaves(value, f"{prefix}.{key}" if prefix else key)
    else:
        yield prefix, tree


def _near(ours: float, theirs: float, rtol: float, atol: float) -> bool:
    if math.isnan(theirs) or math.isinf(theirs):
        return ours == theirs or (math.isnan(ours) and math.isnan(theirs))
    return abs(ours - theirs) <= atol + rtol * abs(theirs)


def _decode(tree: Any) -> Any:
    """The case with "nan", "inf" and "-inf" in number lists turned into floats."""
    if isinstance(tree, dict):
        return {key: _decode(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [
            float(x)
            if x in ("nan", "inf", "-inf")
            else _decode(x)
            if isinstance(x, list | dict)
            else x
            for x in tree
        ]
    return tree


def _short(value: Any) -> str:
    text = str(np.asarray(value, dtype=object).ravel()[:4].tolist())
    return text if len(text) < 120 else text[:117] + "..."
