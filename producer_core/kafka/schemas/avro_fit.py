"""Find the first part of a value that an Avro schema rejects."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

AvroSchema = str | list[Any] | dict[str, Any]
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})
_RECORDS = ("record", "error")


@dataclass(frozen=True, slots=True)
class Misfit:
    """A part of a value that the schema rejects. `path` has a field name, map key or index per level."""

    path: tuple[str | int, ...]
    reason: str

    def below(self, step: str | int) -> Misfit:
        return replace(self, path=(step, *self.path))


def misfit(value: Any, schema: AvroSchema, *, strict: bool = False) -> Misfit | None:
    """Return the first misfit of a value with a schema that fastavro parsed; None if there is none.

    `strict` also rejects fields that a record of the schema does not have.
    """
    return _Walk(named_types(schema), strict).find(value, schema)


class _Walk:
    def __init__(self, named: Mapping[str, AvroSchema], strict: bool) -> None:
        self._named, self._strict = named, strict

    def find(self, value: Any, schema: AvroSchema) -> Misfit | None:
        if isinstance(schema, str) and schema not in _PRIMITIVES:
            schema = self._named.get(schema, schema)
        if isinstance(schema, list):
            return self._in_union(value, schema)
        if isinstance(schema, str):
            return self._in_leaf(value, schema)
        if not isinstance(schema["type"], str):  # a type inside a type
            return self.find(value, schema["type"])
        match schema["type"]:
            case "record" | "error":
                return self._in_record(value, schema)
            case "array":
                return self._in_array(value, schema)
            case "map":
                return self._in_map(value, schema)
            case _:
                return self._in_leaf(value, schema)

    def _in_record(self, value: Any, schema: dict[str, Any]) -> Misfit | None:
        if not isinstance(value, Mapping):
            return _wrong_type(value, schema)
        for field in schema["fields"]:
            name = field["name"]
            if name not in value:
                if "default" not in field:
                    return Misfit((name,), "the field is missing and has no default")
            elif (found := self.find(value[name], field["type"])) is not None:
                return found.below(name)
        if self._strict and (unknown := value.keys() - {field["name"] for field in schema["fields"]}):
            return Misfit((min(unknown, key=str),), f"{_name(schema)} has no such field")
        return None

    def _in_array(self, value: Any, schema: dict[str, Any]) -> Misfit | None:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            return _wrong_type(value, schema)
        for number, item in enumerate(value):
            if (found := self.find(item, schema["items"])) is not None:
                return found.below(number)
        return None

    def _in_map(self, value: Any, schema: dict[str, Any]) -> Misfit | None:
        if not isinstance(value, Mapping):
            return _wrong_type(value, schema)
        for name, item in value.items():
            if not isinstance(name, str):
                return Misfit((name,), "a key of a map must be text")
            if (found := self.find(item, schema["values"])) is not None:
                return found.below(name)
        return None

    def _in_union(self, value: Any, branches: Sequence[AvroSchema]) -> Misfit | None:
        """Return the misfit inside the only branch of the value's kind, or that the value fits no branch."""
        if isinstance(value, tuple):
            return self._in_branch(value, branches)
        found = [self.find(value, branch) for branch in branches]
        if None in found:
            return None
        inside = [one for one in found if one is not None and one.path]
        return inside[0] if len(inside) == 1 else _wrong_type(value, *branches)

    def _in_branch(self, value: tuple[Any, ...], branches: Sequence[AvroSchema]) -> Misfit | None:
        """Return the misfit of a pair of a branch's name and its value, fastavro's notation."""
        for branch in branches:
            name = branch["name"] if isinstance(branch, dict) and branch["type"] in _RECORDS else branch
            if len(value) == 2 and name == value[0]:
                return self.find(value[1], branch)
        return _wrong_type(value, *branches)

    @staticmethod
    def _in_leaf(value: Any, schema: str | dict[str, Any]) -> Misfit | None:
        from fastavro.validation import validate

        try:
            fits = validate(value, schema, raise_errors=False) and _is_in_range(value, schema)
        except (
            ValueError,
            OverflowError,
        ):  # a decimal with more digits than its schema has, a number beyond a float
            fits = False
        return None if fits else _wrong_type(value, schema)


def has_ranges(schema: AvroSchema) -> bool:
    """Return whether a part of the schema rejects values that fastavro writes: a float, or a UUID as text."""
    stack: list[Any] = [schema, *named_types(schema).values()]
    seen: set[int] = set()
    while stack:
        one = stack.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, list):
            stack.extend(one)
        elif isinstance(one, dict):
            stack.append(one["type"])
            stack.extend(field["type"] for field in one.get("fields", ()))
            stack.extend(one[part] for part in ("items", "values") if part in one)
        if one == "float" or (isinstance(one, dict) and one.get("logicalType") == "uuid"):
            return True
    return False


def _is_in_range(value: Any, schema: str | dict[str, Any]) -> bool:
    """Return whether a value of the right type can be read again. fastavro writes 1e300 as the float infinity."""
    kind, logical = (schema, None) if isinstance(schema, str) else (schema["type"], schema.get("logicalType"))
    if kind == "float":
        struct.pack("<f", float(value))
    elif kind == "double":
        float(value)
    elif logical == "uuid" and kind == "string" and isinstance(value, str):
        UUID(value)
    return True


def _wrong_type(value: Any, *schemas: AvroSchema) -> Misfit:
    return Misfit((), f"{_described(value)} does not fit {' or '.join(map(_name, schemas))}")


def _described(value: Any) -> str:
    """Return a value's type, with its size for a number: the value itself may be confidential."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"an int of {value.bit_length()} bits"
    return f"a value of type {type(value).__name__}"


def _name(schema: AvroSchema) -> str:
    if isinstance(schema, str):
        return schema
    if isinstance(schema, list):
        return " or ".join(map(_name, schema))
    if schema["type"] in _NAMED:
        return str(schema["name"])
    return str(schema.get("logicalType", schema["type"]))


def named_types(schema: AvroSchema) -> dict[str, AvroSchema]:
    """Return the records, enums and fixed types of a parsed schema by their full names."""
    named: dict[str, AvroSchema] = {}
    stack: list[Any] = [schema]
    while stack:
        one = stack.pop()
        if isinstance(one, list):
            stack.extend(one)
        elif isinstance(one, dict) and not isinstance(one["type"], str):
            stack.append(one["type"])
        elif isinstance(one, dict):
            if one["type"] in _NAMED:
                named[one["name"]] = one
            if one["type"] in _RECORDS:
                stack.extend(field["type"] for field in one["fields"])
            stack.extend(one[part] for part in ("items", "values") if part in one)
    return named
