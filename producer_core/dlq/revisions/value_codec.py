"""Decode the value of a dead letter into fields, and write edited fields as bytes: JSON, or with a schema of a registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from producer_core._internal import json_document
from producer_core._internal.json_document import NotJson
from producer_core._internal.schema_id import Headers, schema_tagged
from producer_core.dlq.revisions.json_patch import Operation, apply
from producer_core.dlq.revisions.refusal import NotEdited
from producer_core.errors import ConfigError, NotAccepted
from producer_core.kafka.schemas.viewer_settings import viewer_settings

if TYPE_CHECKING:
    from producer_core.kafka.schemas.editable import EditableSchemas

ValueKind = Literal["json", "schema", "bytes", "tombstone"]


@dataclass(frozen=True, slots=True)
class DecodedFields:
    """A value for editing. `document` keeps what JSON cannot, such as the digits of numbers and the times of Avro, and
    `view` is its form in JSON. Without fields (`bytes`, `tombstone`), both are None and `problem` says why.
    """

    kind: ValueKind
    document: Any = None
    view: Any = None
    schema_id: int | str | None = None
    problem: str = ""

    @property
    def has_fields(self) -> bool:
        return self.kind in ("json", "schema")


class ValueCodec:
    """Reads and writes the values of one edit. `find_settings` returns the settings of the schema registry, or None."""

    def __init__(self, find_settings: Callable[[], Mapping[str, Any] | None]) -> None:
        self._find_settings = find_settings
        self._schemas: EditableSchemas | None = None

    def read(self, data: bytes | None, headers: Headers, topic: str) -> DecodedFields:
        """Return the fields of a value of the topic, or why it has none."""
        if data is None:
            return DecodedFields("tombstone", problem="It is a tombstone, which has no fields.")
        tagged = schema_tagged(data, headers, "value")
        if tagged is not None:
            return self._read_tagged(data, headers, topic, tagged.schema_id)
        try:
            document = json_document.parse(data)
        except NotJson as error:
            return DecodedFields("bytes", problem=f"The value has no fields that can be edited: {error}.")
        return DecodedFields("json", document, json_document.natural(document))

    def _read_tagged(self, data: bytes, headers: Headers, topic: str, schema_id: int | str) -> DecodedFields:
        from producer_core.kafka.schemas.read_limits import NotReadable

        try:
            document, view = self._opened().read(data, headers, topic)
        except (NotReadable, ConfigError) as error:
            problem = f"The fields of the value cannot be read: {str(error).rstrip('.')}."
            return DecodedFields("bytes", schema_id=schema_id, problem=problem)
        return DecodedFields("schema", document, view, schema_id)

    def changed(self, fields: DecodedFields, operations: Sequence[Operation]) -> Any:
        """Return the document with the operations applied. A text that replaces a time or decimal of Avro becomes one."""
        if fields.kind != "schema":
            return apply(fields.document, operations)
        from producer_core.kafka.schemas.editable import like

        return apply(fields.document, operations, convert=like)

    def write(
        self,
        document: Any,
        *,
        topic: str,
        headers: Headers,
        written_with: int | str | None,
        schema_id: int | str | None,
    ) -> bytes:
        """Return the bytes of an edited document. Raise NotEdited with the field's path if it does not fit its schema.

        `written_with` is the schema id of the original, and `schema_id` the one to write with; None for plain JSON.
        """
        if schema_id is None:
            try:
                return json_document.write(document)
            except NotJson as error:
                raise NotEdited("invalid", f"The new value cannot be written as JSON: {error}.") from error
        try:
            return self._opened().write(
                document, topic=topic, headers=headers, written_with=written_with, schema_id=schema_id
            )
        except NotAccepted as error:
            raise NotEdited("misfit", f"It does not fit the schema {schema_id}: {error}") from error

    def _opened(self) -> EditableSchemas:
        if self._schemas is None:
            settings = self._find_settings()
            if not settings:
                raise ConfigError(
                    "The value has a schema id, and no schema registry is configured.",
                    fix="Use --schema-registry, or set PRODUCER_CORE_SCHEMA_REGISTRY_URL.",
                )
            from producer_core.kafka.schemas.editable import EditableSchemas

            self._schemas = EditableSchemas(settings)
        return self._schemas


def codec_for(stored: Callable[[], str | None], given: Mapping[str, Any] | None = None) -> ValueCodec:
    """Return a codec with these settings of a registry, or those of the environment, or the store's address."""
    return ValueCodec(lambda: viewer_settings(given, stored()))
