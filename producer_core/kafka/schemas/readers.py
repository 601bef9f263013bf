"""Create the function that reads the values of one schema, within limits, for display."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from producer_core._internal.schema_id import SchemaTagged
from producer_core.kafka.schemas.avro_reader import MAX_DEPTH, NotReadable, read_avro

FORMATS = {"AVRO": "Avro", "JSON": "JSON", "PROTOBUF": "Protobuf"}
"""The names of the formats, by the registry's names."""


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as the registry has it: the type in the registry's words, and its references by name."""

    kind: str
    text: str
    references: Mapping[str, str]


class UnusableSchema(Exception):
    """The schema cannot be used to read values. The text is a sentence."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the values of one schema. `read` returns values of JSON and bytes, or raises NotReadable."""

    format: str
    read: Callable[[SchemaTagged], Any]


def make_reader(schema: SchemaText) -> Reader:
    """Return the reader of a schema. Raise UnusableSchema, or ImportError without the extra `schemas`."""
    make = {"AVRO": _avro, "JSON": _json, "PROTOBUF": _protobuf}.get(schema.kind)
    if make is None:
        raise UnusableSchema(f"Its schema has the unknown type {schema.kind:.40}.")
    return Reader(FORMATS[schema.kind], make(schema))


def _avro(schema: SchemaText) -> Callable[[SchemaTagged], Any]:
    from fastavro.schema import parse_schema

    named: dict[str, Any] = {}
    try:
        for text in schema.references.values():
            parse_schema(orjson.loads(text), named_schemas=named, _write_hint=False)
        parsed = parse_schema(orjson.loads(schema.text), named_schemas=named, _write_hint=False)
    except Exception as error:  # fastavro raises KeyError, TypeError and others for a schema that is not one
        raise UnusableSchema("Its schema is not a valid Avro schema.") from error
    return lambda tagged: read_avro(tagged.payload, parsed, named)


def _json(schema: SchemaText) -> Callable[[SchemaTagged], Any]:
    def read(tagged: SchemaTagged) -> Any:
        try:
            value = orjson.loads(tagged.payload)
        except orjson.JSONDecodeError:
            raise NotReadable("it is not JSON") from None
        if _deep(value, MAX_DEPTH):
            raise NotReadable(f"it is nested deeper than {MAX_DEPTH} levels")
        return value

    return read


def _deep(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(_deep(one, levels - 1) for one in inner if isinstance(one, dict | list))


def _protobuf(schema: SchemaText) -> Callable[[SchemaTagged], Any]:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    pool = DescriptorPool()
    _add_well_known(pool)
    files = {name: _descriptor(text) for name, text in schema.references.items()}
    root = _descriptor(schema.text)
    root.name = root.name or "value.proto"
    try:
        for name, file in files.items():
            file.name = name
            pool.Add(file)
        pool.Add(root)
        top = list(pool.FindFileByName(root.name).message_types_by_name.values())
    except Exception as error:  # protobuf raises TypeError and KeyError for a descriptor that is not complete
        raise UnusableSchema("Its schema is not a valid Protobuf schema.") from error
    assert isinstance(root, FileDescriptorProto)

    def read(tagged: SchemaTagged) -> Any:
        indexes, rest = _indexes(tagged)
        try:
            kind = top[indexes[0]]
            for index in indexes[1:]:
                kind = kind.nested_types[index]
            message = GetMessageClass(kind).FromString(rest)
            return MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)
        except IndexError:
            raise NotReadable("it has a message type that its schema does not have") from None
        except (DecodeError, ValueError, TypeError, RecursionError):
            raise NotReadable("it is not a message of this type") from None

    return read


def _add_well_known(pool: Any) -> None:
    from google.protobuf import (
        any_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    for module in (
        any_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    ):
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
