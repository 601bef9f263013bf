"""Read Protobuf messages of unknown origin, with limits on depth, parts and names.

The names of the fields are those of the schema, 64-bit integers are text as in Protobuf's JSON, and bytes stay bytes, so
that masking treats them as it treats the bytes of a plain value. Fields that are not set are left out.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any

from producer_core._internal.schema_id import SchemaTagged
from producer_core.kafka.schemas.read_limits import NotReadable, ReadBudget, UnusableSchema, finite

_PACKAGE = "google.protobuf."
_AS_TEXT = frozenset({"Timestamp", "Duration", "FieldMask"})
_WRAPPERS = frozenset({
    "BoolValue", "BytesValue", "DoubleValue", "FloatValue", "Int32Value", "Int64Value", "StringValue", "UInt32Value",
    "UInt64Value",
})  # fmt: skip


def protobuf_reader(
    text: str, references: Mapping[str, str]
) -> tuple[Callable[[SchemaTagged], Any], tuple[str, ...]]:
    """Return the function that reads messages of a compiled schema, and the names of its messages. Raise UnusableSchema."""
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    _add_well_known(pool)
    files = {name: _descriptor(one) for name, one in references.items()}
    root = _descriptor(text)
    root.name = root.name or "value.proto"
    try:
        for name, file in files.items():
            file.name = name
            pool.Add(file)
        pool.Add(root)
        top = list(pool.FindFileByName(root.name).message_types_by_name.values())
    except Exception as error:  # protobuf raises TypeError and KeyError for a descriptor that is not complete
        raise UnusableSchema("Its schema is not a valid Protobuf schema.") from error

    def read(tagged: SchemaTagged) -> Any:
        indexes, rest = _indexes(tagged)
        try:
            kind = top[indexes[0]]
            for index in indexes[1:]:
                kind = kind.nested_types[index]
        except IndexError:
            raise NotReadable("it has a message type that its schema does not have") from None
        return _Walk(pool).message(_parsed(kind, rest), 0)

    return read, tuple(_names(top))


def _names(kinds: Iterable[Any]) -> Iterator[str]:
    stack = list(kinds)
    while stack:
        kind = stack.pop()
        yield kind.full_name
        stack.extend(kind.nested_types)


def _parsed(kind: Any, data: bytes) -> Any:
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    try:
        return GetMessageClass(kind).FromString(data)
    except (DecodeError, ValueError, TypeError, RecursionError):
        raise NotReadable("it is not a message of this type") from None


class _Walk:
    """Turns one message into values of JSON and bytes."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._budget = ReadBudget()

    def message(self, message: Any, depth: int) -> Any:
        self._budget.part(depth)
        kind = message.DESCRIPTOR.full_name
        if kind.startswith(_PACKAGE):
            return self._well_known(message, kind.removeprefix(_PACKAGE), depth)
        return self._fields(message, depth)

    def _well_known(self, message: Any, kind: str, depth: int) -> Any:
        if kind in _AS_TEXT:
            return self._text(message, depth)
        if kind in _WRAPPERS:
            return self._one(message.DESCRIPTOR.fields_by_name["value"], message.value, depth)
        fields = self._fields(message, depth)
        match kind:
            case "Any":
                return self._any(message, fields, depth)
            case "Struct":
                return fields.get("fields", {})
            case "ListValue":
                return fields.get("values", [])
            case "Value":
                return None if "null_value" in fields else next(iter(fields.values()), None)
        return fields

    def _text(self, message: Any, depth: int) -> Any:
        """Return a time, duration or field mask as Protobuf's JSON has it; its fields if they are out of range."""
        from google.protobuf import json_format

        try:
            return json_format.MessageToDict(message)
        except (json_format.Error, ValueError, ArithmeticError):
            return self._fields(message, depth)

    def _any(self, message: Any, fields: dict[str, Any], depth: int) -> dict[str, Any]:
        """Return the message inside with its type; its bytes if the schema does not have the type."""
        try:
            kind = self._pool.FindMessageTypeByName(message.type_url.rpartition("/")[2])
        except KeyError:
            return fields
        inner = self.message(_parsed(kind, message.value), depth + 1)
        if kind.full_name.startswith(_PACKAGE):
            return {"@type": message.type_url, "value": inner}
        return {"@type": message.type_url, **inner}

    def _fields(self, message: Any, depth: int) -> dict[str, Any]:
        return {
            self._budget.name(f"[{field.full_name}]" if field.is_extension else field.name): self._value(
                field, value, depth
            )
            for field, value in message.ListFields()
        }

    def _value(self, field: Any, value: Any, depth: int) -> Any:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            of = field.message_type.fields_by_name["value"]
            return {_map_key(key): self._one(of, item, depth + 1) for key, item in value.items()}
        if isinstance(value, bool | int | float | str | bytes) or hasattr(value, "ListFields"):
            return self._one(field, value, depth)
        return [self._one(field, item, depth + 1) for item in value]

    def _one(self, field: Any, value: Any, depth: int) -> Any:
        if field.message_type is not None:
            return self.message(value, depth + 1)
        self._budget.part(depth)
        if field.enum_type is not None:
            symbol = field.enum_type.values_by_number.get(value)
            return value if symbol is None else self._budget.name(symbol.name)
        if isinstance(value, float):
            return finite(_shortest(value) if field.cpp_type == field.CPPTYPE_FLOAT else value)
        wide = field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64)
        return str(value) if wide else value


def _map_key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _shortest(value: float) -> float:
    """Return the shortest decimal number with the same 32 bits: 0.1, not 0.10000000149011612."""
    for digits in (6, 7, 8):
        short = float(f"{value:.{digits}g}")
        if abs(short) < 3e38 and struct.pack("<f", short) == struct.pack("<f", value):
            return short
    return value


def _add_well_known(pool: Any) -> None:
    for name in ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers"):
        module = import_module(f"google.protobuf.{name}_pb2")
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)


def _descriptor(text: str) -> Any:
    """Return the compiled form of a schema. Registries that have only its text cannot be used to read values."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        return FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError) as error:
        raise UnusableSchema(
            "The schema registry has only the text of its Protobuf schema, not the compiled form."
        ) from error


def _indexes(tagged: SchemaTagged) -> tuple[list[int], bytes]:
    """Return the indexes of the message type, and the message. A count of zero means the first type."""
    source = tagged.payload if tagged.indexes is None else tagged.indexes
    count, at = _zigzag(source, 0)
    if not 0 <= count <= 100:
        raise NotReadable("it does not name a message type")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(source, at)
        if index < 0:
            raise NotReadable("it does not name a message type")
        indexes.append(index)
    return indexes or [0], source[at:] if tagged.indexes is None else tagged.payload


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift, byte in zip(range(0, 35, 7), data[at : at + 5], strict=False):
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise NotReadable("it does not name a message type")
