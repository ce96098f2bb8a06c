"""Names in a config become functions here, and wrong names stop with a suggestion."""

import difflib
import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any


def bind(spec: Mapping[str, Any], table: Mapping[str, Callable]) -> Callable:
    """The function that a config entry names, with the entry's options bound.

    Args:
        spec: {"name": ..., option: value, ...}. A name is a key of `table`, or
            "module:function" for a function of the user's own.
        table: the shipped functions of one slot, by name.

    Returns:
        A partial that still takes the slot's own arguments.

    Raises:
        ValueError: unknown name or option; the message says which ones exist.
    """
    options = {key: value for key, value in spec.items() if key != "name"}
    function = _lookup(spec["name"], table)
    parameters = inspect.signature(function).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    accepted = [n for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY]
    for key in options:
        if key not in accepted and not takes_any:
            raise ValueError(
                f"{spec['name']} has no option {key!r}{suggestion(key, accepted)}"
                f"; it takes {', '.join(accepted) or 'none'}"
            )
    return functools.partial(function, **options)


def suggestion(word: str, choices: Any) -> str:
    """', did you mean X?' for the closest choice, or ''."""
    close = difflib.get_close_matches(str(word), [str(c) for c in choices], n=1)
    return f", did you mean {close[0]!r}?" if close else ""


def _lookup(name: str, table: Mapping[str, Callable]) -> Callable:
    if name in table:
        return table[name]
    if ":" not in name:
        raise ValueError(
            f"unknown name {name!r}{suggestion(name, table)}"
            f"; shipped: {', '.join(table)}; your own: 'my_module:my_function'"
        )
    module_name, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"cannot import {name!r}: {error}") from error


SLOT = "slot"  # {"name": str, options}: bind() checks the options.
OPEN = "open"  # Any keys: names that the user chooses.


def check(config: Mapping[str, Any], schema: Mapping[str, Any], path: str = "") -> None:
    """Stops on a key that is unknown, missing or of the wrong type.

    Args:
        config: nested mapping of plain values.
        schema: the same nesting with a type, SLOT or OPEN in the place of each value;
            an int is welcome where a float is wanted.
        path: of `config` within the whole, for messages.

    Raises:
        ValueError: names the key, the value and the fix.
    """
    for key in config:
        if key not in schema:
            raise ValueError(
                f"unknown config key {path}{key}{suggestion(key, schema)}"
                f"; known here: {', '.join(schema)}"
            )
    for key, wanted in schema.items():
        if key not in config:
            raise ValueError(f"config key {path}{key} is missing")
        _check_value(config[key], wanted, f"{path}{key}")


def _check_value(value: Any, wanted: Any, where: str) -> None:
    if isinstance(wanted, Mapping) or wanted in (SLOT, OPEN):
        if not isinstance(value, Mapping):
            raise ValueError(f"config key {where} is {value!r}; a section is wanted")
        if wanted == SLOT and not isinstance(value.get("name"), str):
            raise ValueError(f"config key {where}.name is missing; it names a function")
        if isinstance(wanted, Mapping):
            check(value, wanted, f"{where}.")
        return
    accepted = (int, float) if wanted is float else (wanted,)
    if type(value) not in accepted:
        raise ValueError(
            f"config key {where} is {value!r} of type {type(value).__name__}; "
            f"{wanted.__name__} is wanted"
        )


def changed_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple]:
    """{"a.b": (old value, new value)} for each leaf that differs; None if absent."""
    before, after = _leaves(old), _leaves(new)
    return {
        key: (before.get(key), after.get(key))
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    }


def _leaves(tree: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    leaves = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            leaves.update(_leaves(value, f"{path}{key}."))
        else:
            leaves[path + key] = list(value) if isinstance(value, tuple) else value
    return leaves
