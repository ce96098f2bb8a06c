"""Plain Python functions as tools: the schema is read off the signature."""

import asyncio
import concurrent.futures
import importlib
import inspect
import json
import re
import threading
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from agentic_jax.sandbox.capture import cut_middle
from agentic_jax.tools.base import Tool
from agentic_jax.trajectory import ToolResult

_JSON_TYPES = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
}


def function_tool(
    *, function: str | Callable[..., Any], timeout: float, max_chars: int
) -> Tool:
    """A tool that calls one function, in this process and in a thread of its own.

    The tool has the function's name, the first paragraph of its docstring and its
    parameters, with what the docstring's Args section says of each. An async function
    is awaited instead. What it returns is shown as text, other values as JSON.

    Only for code that we trust: nothing isolates it, and a thread that has timed out
    cannot be killed, so it goes on in the background.

    Args:
        function: or "module:function". Its parameters are annotated with str, int,
            float, bool, list, dict, list[...], Literal[...] or one of these | None.
        timeout: seconds for one call; then its status is "timeout".
        max_chars: of the text; a longer one keeps its head and its tail.

    Returns:
        A tool whose status is "error" where the function raises, with the exception in
        words, but for ConnectionError, which is a fault of ours and raises.

    Raises:
        ValueError: no such function, no docstring, or a parameter without an annotation
            that has a JSON type.
    """
    if isinstance(function, str):
        function = _imported(function)
    schema, timeout = parameters_of(function), float(timeout)

    async def run(**arguments: Any) -> ToolResult:
        try:
            async with asyncio.timeout(timeout):
                if inspect.iscoroutinefunction(function):
                    value = await function(**arguments)
                else:
                    value = await _in_thread(function, arguments)
            return ToolResult(cut_middle(_text(value), max_chars), "ok")
        except TimeoutError:
            return ToolResult(f"Stopped after {timeout:g} s.", "timeout")
        except ConnectionError:
            raise
        except Exception as error:  # The function raises anything.
            text = f"{type(error).__name__}: {error}"
            return ToolResult(cut_middle(text, max_chars), "error")

    return Tool(
        name=function.__name__,
        description=_paragraphs(function)[0],
        parameters=schema,
        run=run,
        timeout=timeout + 30.0,  # This process would have to be stuck.
    )


def parameters_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The JSON schema of a function's arguments.

    Raises:
        ValueError: no docstring, *args or **kwargs, a positional-only parameter, or an
            annotation that is missing or has no JSON type.
    """
    described = _described(function)
    hints = typing.get_type_hints(function)
    properties, required = {}, []
    for name, parameter in inspect.signature(function).parameters.items():
        where = f"parameter {name!r} of {function.__name__}"
        if parameter.kind not in (
            parameter.POSITIONAL_OR_KEYWORD,
            parameter.KEYWORD_ONLY,
        ):
            raise ValueError(f"{where} cannot be given by name")
        if name not in hints:
            raise ValueError(f"{where} has no annotation; give it a type such as str")
        properties[name] = _schema_of(hints[name], where)
        if name in described:
            properties[name]["description"] = described[name]
        if parameter.default is parameter.empty:
            required.append(name)
    return {"type": "object", "properties": properties, "required": required}


def _schema_of(hint: Any, where: str) -> dict[str, Any]:
    """The JSON schema of one annotation."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return {"type": _JSON_TYPES[type(arguments[0])], "enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        (hint, *others) = [a for a in arguments if a is not type(None)]
        if not others:
            return _schema_of(hint, where)
    plain = origin or hint
    if plain not in _JSON_TYPES:
        known = ", ".join(t.__name__ for t in _JSON_TYPES)
        raise ValueError(f"{where} is annotated {hint}; known: {known}, Literal")
    schema: dict[str, Any] = {"type": _JSON_TYPES[plain]}
    if plain is list and arguments:
        schema["items"] = _schema_of(arguments[0], where)
    return schema


async def _in_thread(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """What the function returns; its thread keeps nobody waiting, not even the exit."""
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def work() -> None:
        future.set_running_or_notify_cancel()
        try:
            future.set_result(function(**arguments))
        except Exception as error:  # The function raises anything.
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return await asyncio.wrap_future(future)


def _imported(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"cannot import {name!r}: {error}; write module:function"
        ) from (error)


def _paragraphs(function: Callable[..., Any]) -> list[str]:
    """The paragraphs of a docstring, each on one line."""
    text = inspect.getdoc(function)
    if not text:
        raise ValueError(
            f"{function.__name__} has no docstring; the policy reads its start"
        )
    return [" ".join(part.split()) for part in text.split("\n\n")]


def _described(function: Callable[..., Any]) -> Mapping[str, str]:
    """What the docstring's Args section says, by parameter."""
    _paragraphs(function)
    section = re.search(
        r"^Args:\n((?:[ \t]+.*\n?|\n)+)", inspect.getdoc(function), re.MULTILINE
    )
    if not section:
        return {}
    lines = inspect.cleandoc("\n" + section[1])
    entries = re.split(r"^(\w+)[^\n:]*:", lines, flags=re.MULTILINE)[1:]
    texts = (" ".join(text.split()) for text in entries[1::2])
    return dict(zip(entries[::2], texts, strict=True))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
