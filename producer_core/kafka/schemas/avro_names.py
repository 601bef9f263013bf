"""Check the parts of an Avro schema that fastavro accepts and a reader cannot use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_MAX_FIXED = 1 << 20


def check_avro(schemas: list[Any]) -> None:
    """Raise ValueError, TypeError or KeyError for a name, symbol or size of the wrong type in schemas that fastavro parsed."""
    stack, seen = list(schemas), set()
    while stack:
        one = stack.pop()
        if id(one) in seen:  # a named type is also part of the type that defines it
            continue
        seen.add(id(one))
        if isinstance(one, list):
            stack.extend(one)
        elif isinstance(one, dict):
            stack.extend(_checked(one))
        else:
            _text(one)


def _checked(schema: dict[str, Any]) -> Iterator[Any]:
    """Check one type, and yield the types inside it."""
    match schema["type"]:
        case "record" | "error":
            for field in _list(schema["fields"]):
                _text(field["name"])
                yield field["type"]
        case "enum":
            for symbol in _list(schema["symbols"]):
                _text(symbol)
        case "fixed":
            size = schema["size"]
            if type(size) is not int or not 0 <= size <= _MAX_FIXED:
                raise ValueError("size")
        case "array":
            yield schema["items"]
        case "map":
            yield schema["values"]
        case other:
            yield other


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(value)
    return value


def _text(value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(value)
