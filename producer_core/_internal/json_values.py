"""Types with a documented text form in JSON, and the place of an unsupported value inside a message."""

from __future__ import annotations

from collections import UserString
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta, tzinfo
from enum import Enum
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from pathlib import PurePath
from typing import Any

from producer_core.errors import InvalidMessage

AS_TEXT = (
    PurePath, timedelta, tzinfo, Fraction, UserString,
    IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network,
)  # fmt: skip
"""Types whose `str()` is lossless and the same in every process."""

_MAX_STEPS = 32
"""Maximum steps of a path; a deeper path is cut."""


def unsupported_type(value: Any) -> InvalidMessage:
    """Return the error for a value whose type has no documented JSON form."""
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return InvalidMessage(f"A value of type {name} has no JSON form.", fix=_fix(value))


def _fix(value: Any) -> str:
    for method in ("model_dump", "to_dict", "_asdict", "isoformat"):
        if callable(getattr(value, method, None)) and not isinstance(value, type):
            return f"Pass value.{method}(), or set value_serializer=."
    return "Convert it to a dict, a list, text or a number, or set value_serializer=."


def path_to(value: Any, refused: Callable[[Any], bool]) -> str:
    """Return the path to the part of `value` that `refused` rejects, as `['items'][3].price`; empty for all of it."""
    steps: list[str] = []
    while len(steps) < _MAX_STEPS:
        for step, child in _children(value):
            if refused(child):
                steps.append(step)
                value = child
                break
        else:
            return "".join(steps)
    return "".join(steps) + "…"


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f"[{name!r:.60}]", child) for name, child in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"[{number}]", child) for number, child in enumerate(value))
    elif isinstance(value, set | frozenset):
        yield from (("{…}", child) for child in value)
    elif isinstance(value, Enum):
        yield ".value", value.value
    elif is_dataclass(value) and not isinstance(value, type):
        yield from ((f".{one.name}", getattr(value, one.name, None)) for one in fields(value))
    elif hasattr(value, "tolist") and isinstance(plain := value.tolist(), list):
        yield from _children(plain)
