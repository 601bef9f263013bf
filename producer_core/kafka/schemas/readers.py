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
        check_avro([parsed, *named.values()])
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
    return protobuf_reader(schema.text, schema.references)
