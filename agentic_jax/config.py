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
