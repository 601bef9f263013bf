"""Create confluent-kafka's serializer for one schema whose id is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson

from producer_core.kafka.schemas.avro_defaults import make_defaults_writable
from producer_core.kafka.schemas.avro_fit import has_ranges, misfit
from producer_core.kafka.schemas.registry import missing_extra
from producer_core.kafka.schemas.rejections import not_accepted
from producer_core.messages import encode_value

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.serialization import SerializationContext

Write = Callable[[Any, "SerializationContext"], "bytes | None"]
MakeWriter = Callable[["SchemaRegistryClient", "Schema", int], Write]

_MAGIC = b"\0"
"""The first byte of a record with a schema id, which follows as four bytes."""

TYPES = {"avro": "AVRO", "json": "JSON"}
"""The registry's name of each format."""


def make_writer(format_name: str) -> MakeWriter:
    """Return the function that creates a serializer of this format. Raise ConfigError without the extra `schemas`."""
    try:
        return _avro() if format_name == "avro" else _json()
    except ImportError as error:
        raise missing_extra(error) from error


def _avro() -> MakeWriter:
    from confluent_kafka.schema_registry.avro import AvroSerializer

    def make(client: SchemaRegistryClient, schema: Schema, schema_id: int) -> Write:
        # A field that the schema does not have would be dropped silently.
        settings = {**_settings(schema, schema_id), "validate.strict.allow.default": True}
        serializer: Write = AvroSerializer(client, _as_object(schema), conf=settings)
        parsed = getattr(serializer, "_parsed_schema", None)
        return (
            serializer if parsed is None or schema.rule_set is not None else CheckedAvro(serializer, parsed)
        )

    return make


class CheckedAvro:
    """Serializes only values that fit the schema. fastavro's writer alone would write 7.9 as the long 7, any object as
    the boolean true, an int that needs more than 32 bits, and 1e300 as the float infinity."""

    def __init__(self, serializer: Write, parsed: Any) -> None:
        from fastavro.validation import validate

        self._serializer, self._parsed, self._validate = serializer, parsed, validate
        self._has_ranges = has_ranges(parsed)
        make_defaults_writable(parsed)

    def __call__(self, value: Any, context: SerializationContext) -> bytes | None:
        try:
            if self._validate(value, self._parsed, raise_errors=False) and not (
                self._has_ranges and misfit(value, self._parsed)
            ):
                return self._serializer(value, context)
            raise ValueError("the value does not fit the schema")
        except Exception as error:
            raise not_accepted(error, self._serializer, value, context.field) from error


def schema_problem(kind: str, text: str) -> str:
    """Return why a text is not a schema of the registry's type AVRO or JSON; an empty text if it is one."""
    try:
        schema = orjson.loads(text)
        if kind == "AVRO":
            from fastavro import parse_schema

            parse_schema(schema)
        else:
            from jsonschema.validators import validator_for  # type: ignore[import-untyped]

            validator_for(schema).check_schema(schema)
    except Exception as error:  # noqa: BLE001  both packages raise many types
        return str(getattr(error, "message", error)) or type(error).__name__
    return ""


def _as_object(schema: Schema) -> Schema:
    """Return a schema such as `"long"` in its other form `{"type": "long"}`, which AvroSerializer needs."""
    from confluent_kafka.schema_registry import Schema

    text = (schema.schema_str or "").strip()
    return Schema(f'{{"type": {text}}}', schema.schema_type) if text.startswith('"') else schema


def _json() -> MakeWriter:
    from confluent_kafka.schema_registry.json_schema import JSONSerializer

    def make(client: SchemaRegistryClient, schema: Schema, schema_id: int) -> Write:
        settings = _settings(schema, schema_id)
        serializer: Write = JSONSerializer(schema, client, _plain, conf=settings, json_encode=orjson.dumps)
        return serializer

    return make


def _settings(schema: Schema, schema_id: int) -> dict[str, Any]:
    """Return a serializer's settings. Without a subject it sends no request and expands no schema per message.

    A schema with rules needs the subject: a rule may encrypt a field.
    """
    settings: dict[str, Any] = {"auto.register.schemas": False}
    if schema.rule_set is not None:
        return {**settings, "use.schema.id": schema_id, "subject.name.strategy.type": "TOPIC"}
    prefix = _MAGIC + schema_id.to_bytes(4, "big")
    settings["subject.name.strategy"] = lambda context, record_name: None
    settings["schema.id.serializer"] = lambda payload, context, unknown_id: prefix + payload
    return settings


def _plain(value: Any, context: SerializationContext) -> Any:
    """Return a value with the types of JSON only, converted as without a schema."""
    return orjson.loads(encode_value(value) or b"null")
