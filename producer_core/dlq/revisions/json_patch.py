"""Compare two JSON values, and apply the difference: operations of JSON Patch (RFC 6902)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Operation = dict[str, Any]
"""`{"op": "add" | "replace" | "remove", "path": "/a/0", "value": …}`."""
Step = str | int


def diff(before: Any, after: Any) -> list[Operation]:
    """Return the operations that turn `before` into `after`, in the order in which they apply."""
    return list(_diff(before, after, ()))


def apply(
    document: Any,
    operations: Sequence[Operation],
    *,
    convert: Callable[[Any, Any], Any] = lambda before, after: after,
) -> Any:
    """Return the document with the operations applied; the given one stays unchanged.

    `convert` gets each replaced value and the new one, and returns what is written. Raise ValueError if an operation does
    not fit the document.
    """
    document = copy.deepcopy(document)
    for operation in operations:
        document = _applied(document, operation, convert)
    return document


def pointer(steps: Sequence[Step]) -> str:
    """Return a path as a JSON Pointer."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)


def steps_of(path: str) -> tuple[str, ...]:
    """Return the steps of a JSON Pointer. Raise ValueError for any other text."""
    if not path:
        return ()
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is not a JSON Pointer")
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/"))


def equal(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal. 1 and 1.0 are; true and 1 are not."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(item, other[name]) for name, item in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if _is_number(one) and _is_number(other):
        return _equal_numbers(one, other)
    return type(one) is type(other) and bool(one == other)


def _diff(before: Any, after: Any, steps: tuple[Step, ...]) -> Iterator[Operation]:
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _object_diff(before, after, steps)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _list_diff(before, after, steps)
    elif not equal(before, after):
        yield {"op": "replace", "path": pointer(steps), "value": after}


def _object_diff(
    before: dict[str, Any], after: dict[str, Any], steps: tuple[Step, ...]
) -> Iterator[Operation]:
    for name in before:
        if name not in after:
            yield {"op": "remove", "path": pointer((*steps, name))}
    for name, item in after.items():
        if name in before:
            yield from _diff(before[name], item, (*steps, name))
        else:
            yield {"op": "add", "path": pointer((*steps, name)), "value": item}


def _list_diff(before: list[Any], after: list[Any], steps: tuple[Step, ...]) -> Iterator[Operation]:
    common = min(len(before), len(after))
    for number in range(common):
        yield from _diff(before[number], after[number], (*steps, number))
    for number in range(len(before) - 1, common - 1, -1):
        yield {"op": "remove", "path": pointer((*steps, number))}
    for number in range(common, len(after)):
        yield {"op": "add", "path": pointer((*steps, number)), "value": after[number]}


def _applied(document: Any, operation: Operation, convert: Callable[[Any, Any], Any]) -> Any:
    steps, kind = steps_of(operation["path"]), operation["op"]
    value = copy.deepcopy(operation.get("value"))
    if not steps:
        if kind != "replace":
            raise ValueError("only a replacement applies to a whole value")
        return value
    holder = document
    for step in steps[:-1]:
        holder = holder[_index(holder, step)]
    if kind == "replace":
        value = convert(holder[_index(holder, steps[-1])], value)
    _change(holder, steps[-1], kind, value)
    return document


def _change(holder: Any, step: str, kind: str, value: Any) -> None:
    place = _index(holder, step, grows=kind == "add")
    match kind:
        case "add" if isinstance(holder, list):
            holder.insert(place, value)
        case "add":
            holder[place] = value
        case "replace":
            holder[place] = value
        case "remove":
            del holder[place]
        case _:
            raise ValueError(f"{kind!r} is not an operation")


def _index(holder: Any, step: str, *, grows: bool = False) -> Any:
    """Return the key of an object or the index of a list. Raise ValueError if there is no such place."""
    if isinstance(holder, dict) and (grows or step in holder):
        return step
    if isinstance(holder, list) and step.isdecimal() and int(step) < len(holder) + grows:
        return int(step)
    raise ValueError(f"there is no {step!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _equal_numbers(one: float, other: float) -> bool:
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    try:
        return float(one) == float(other)  # a program that has only floats cannot return more digits
    except OverflowError:
        return False
