"""Give the fields of an Avro schema defaults that can be written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from producer_core.kafka.schemas.avro_fit import AvroSchema, named_types


def make_defaults_writable(schema: AvroSchema) -> None:
    """Turn the defaults of bytes and fixed types, which are text in a schema's JSON, into bytes.

    fastavro writes the default of an omitted field unchanged from the schema, and rejects text for bytes.
    """
    named = dict(named_types(schema))
    if isinstance(schema, dict):
        named |= schema.get("__named_schemas", {})
    for one in named.values():
        for field in one.get("fields", ()) if isinstance(one, dict) else ():
            if "default" in field:
                field["default"] = _writable(field["default"], field["type"], named)


def _writable(default: Any, schema: AvroSchema, named: Mapping[str, AvroSchema]) -> Any:
    if isinstance(schema, list):  # the default belongs to the first branch
        return _writable(default, schema[0], named) if schema else default
    kind = schema if isinstance(schema, str) else schema["type"]
    if not isinstance(kind, str):  # a type inside a type
        return _writable(default, kind, named)
    if kind in named and isinstance(schema, str):
        return _writable(default, named[kind], named)
    if kind in ("bytes", "fixed"):
        # Avro's specification: the code points 0 to 255 are the bytes 0 to 255.
        return default.encode("iso-8859-1") if isinstance(default, str) else default
    if isinstance(schema, str):
        return default
    match kind, default:
        case "array", [*items]:
            return [_writable(item, schema["items"], named) for item in items]
        case "map", {}:
            return {name: _writable(item, schema["values"], named) for name, item in default.items()}
        case "record", {}:
            types = {field["name"]: field["type"] for field in schema["fields"]}
            return {
                name: _writable(item, types[name], named) if name in types else item
                for name, item in default.items()
            }
    return default
