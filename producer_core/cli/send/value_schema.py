"""The schema of the rows of a `send`: its options as settings, and the value of a row."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from producer_core._internal.schema_settings import SchemaSettings
from producer_core.cli.send.rows import InputRow
from producer_core.errors import ConfigError, InvalidMessage

_FORMATS = {".avsc": "avro", ".json": "json"}


def with_schema_options(
    config: Mapping[str, Any], schema: Path | None, registry: str | None
) -> dict[str, Any]:
    """Return the settings with those of --value-schema and --schema-registry, which take precedence."""
    chosen: dict[str, Any] = {}
    if schema is not None:
        chosen = {"value.serializer": _format_of(schema), "value.schema": schema}
    if registry is not None:
        chosen["schema.registry.url"] = registry
    kept = {name: value for name, value in config.items() if name.replace("_", ".") not in chosen}
    return {**kept, **chosen}


def _format_of(schema: Path) -> str:
    found = _FORMATS.get(schema.suffix.lower())
    if found is None:
        raise ConfigError(
            f"The format of the schema cannot be determined from the file name {schema.name}.",
            fix="Name the file .avsc for Avro or .json for JSON Schema.",
        )
    return found


def describe(schemas: SchemaSettings | None) -> str | None:
    """Return the format and a digest of the rows' schema, to detect a change between two runs; None without one."""
    if schemas is None or "value" not in schemas.formats:
        return None
    text = schemas.schemas.get("value")
    digest = "latest" if text is None else hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{schemas.formats['value']} {digest}"


def value_of(row: InputRow, *, by_schema: bool) -> Any:
    """Return the value to send: a JSON line's bytes, or with a schema its fields."""
    if not by_schema:
        return row.value
    if row.fields is None:
        raise InvalidMessage("The row is null, which would be a tombstone with a schema.")
    return row.fields
