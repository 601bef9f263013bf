"""Create the function that reads the values of one schema, within limits, for display."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from producer_core._internal.schema_id import SchemaTagged
from producer_core.kafka.schemas.avro_names import check_avro
from producer_core.kafka.schemas.avro_reader import read_avro
from producer_core.kafka.schemas.protobuf_reader import protobuf_reader
from producer_core.kafka.schemas.read_limits import MAX_DEPTH, NotReadable, UnusableSchema

FORMATS = {"AVRO": "Avro", "JSON": "JSON", "PROTOBUF": "Protobuf"}
"""The names of the formats, by the registry's names."""


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as the registry has it: the type in the registry's words, and its references by name."""

    kind: str
    text: str
    references: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the values of one schema. `read` returns values of JSON and bytes, or raises NotReadable.

    `record_names` are those that a subject may be named after. `subjects` has the schema's subjects in the registry; None
    for a GUID, which is the same in every registry.
    """

    format: str
    read: Callable[[SchemaTagged], Any]
    record_names: tuple[str, ...] = ()
    subjects: frozenset[str] | None = None


_Made = tuple[Callable[[SchemaTagged], Any], tuple[str, ...]]
"""The function that reads values, and the names of the records."""


def make_reader(schema: SchemaText) -> Reader:
    """Return the reader of a schema. Raise UnusableSchema, or ImportError without the extra `schemas`."""
    make = {"AVRO": _avro, "JSON": _json, "PROTOBUF": _protobuf}.get(schema.kind)
    if make is None:
        raise UnusableSchema("Its schema has an unknown type.")
    read, record_names = make(schema)
    return Reader(FORMATS[schema.kind], read, record_names)


def _avro(schema: SchemaText) -> _Made:
    from fastavro.schema import parse_schema

    named: dict[str, Any] = {}
    try:
        for text in schema.references.values():
            parse_schema(orjson.loads(text), named_schemas=named, _write_hint=False)
        parsed = parse_schema(orjson.loads(schema.text), named_schemas=named, _write_hint=False)
        check_avro([parsed, *named.values()])
    except Exception as error:  # fastavro raises KeyError, TypeError and others for a schema that is not one
        raise UnusableSchema("Its schema is not a valid Avro schema.") from error
    name = parsed.get("name") if isinstance(parsed, dict) else None
    return lambda tagged: read_avro(tagged.payload, parsed, named), (name,) if isinstance(name, str) else ()


def _json(schema: SchemaText) -> _Made:
    def read(tagged: SchemaTagged) -> Any:
        try:
            value = orjson.loads(tagged.payload)
        except orjson.JSONDecodeError:
            raise NotReadable("it is not JSON") from None
        if _deep(value, MAX_DEPTH):
            raise NotReadable(f"it is nested deeper than {MAX_DEPTH} levels")
        return value

    return read, _title(schema.text)


def _title(text: str) -> tuple[str, ...]:
    try:
        title = orjson.loads(text)["title"]
    except (ValueError, TypeError, KeyError, IndexError):
        return ()
    return (title,) if isinstance(title, str) else ()


def _deep(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(_deep(one, levels - 1) for one in inner if isinstance(one, dict | list))


def _protobuf(schema: SchemaText) -> _Made:
    return protobuf_reader(schema.text, schema.references)
