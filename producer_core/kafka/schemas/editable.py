"""Decode values with a schema id for an edit, and write the edited ones with the schema of an id."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from io import BytesIO
from typing import TYPE_CHECKING, Any
from uuid import UUID

from producer_core._internal import json_document
from producer_core._internal.json_document import NotJson
from producer_core._internal.schema_id import Headers, SchemaTagged, schema_tagged
from producer_core._internal.schema_settings import client_settings
from producer_core.errors import InvalidMessage, NotAccepted
from producer_core.kafka.schemas.formats import make_writer
from producer_core.kafka.schemas.read_limits import NotReadable, UnusableSchema
from producer_core.kafka.schemas.readers import Reader, SchemaText, make_reader
from producer_core.kafka.schemas.registry import Registry
from producer_core.kafka.schemas.rejections import field_path, not_accepted
from producer_core.kafka.schemas.subject_check import subject_problem
from producer_core.kafka.schemas.viewer_settings import StoredSettings

if TYPE_CHECKING:
    from producer_core.kafka.schemas.formats import Write

_PREFIX = 5
"""Bytes before the payload in Confluent's wire format."""
_ID_HEADER = "__value_schema_id"


@dataclass(frozen=True, slots=True)
class _Schema:
    """A schema to read and write with. `parsed` is fastavro's form; None for JSON."""

    reader: Reader
    write: Write
    parsed: Any


class EditableSchemas:
    """The schemas of a registry, for Avro and JSON without references and rules. Used by one thread.

    It asks for each schema once, also for one that cannot be used.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._registry = Registry(client_settings({"timeout": 3.0, "max.retries": 0, **settings}))
        self._stored = isinstance(settings, StoredSettings)
        self._schemas: dict[int | str, _Schema | str] = {}

    def read(self, data: bytes, headers: Headers, topic: str) -> tuple[Any, Any]:
        """Return the decoded value, and its form in JSON. Raise NotReadable with the reason.

        A value that would not be written again as the same bytes is refused, because an edit of one field would change
        other parts of it too.
        """
        tagged = schema_tagged(data, headers, "value")
        assert tagged is not None
        schema = self._usable(tagged.schema_id, topic)
        schema.reader.read(tagged)  # within limits, which the next line does not have
        document = _read(tagged, schema)
        if schema.parsed is not None and _payload(schema, document, topic) != tagged.payload:
            raise NotReadable("its Avro form is not the one that would be written again")
        return document, as_json(document)

    def write(
        self,
        document: Any,
        *,
        topic: str,
        headers: Headers,
        written_with: int | str | None,
        schema_id: int | str,
    ) -> bytes:
        """Return the bytes of a document. Raise InvalidMessage with the field's path if it does not fit the schema."""
        in_header = any(name == _ID_HEADER for name, _ in headers)
        if in_header and schema_id != written_with:
            raise InvalidMessage("The schema id is in a header and cannot be changed.")
        try:
            payload = _payload(self._usable(schema_id, topic), document, topic)
        except NotReadable as error:
            raise InvalidMessage(f"The schema {schema_id} cannot be used: {error}.") from error
        if in_header or not isinstance(schema_id, int):
            return payload
        return b"\0" + schema_id.to_bytes(4, "big") + payload

    def close(self) -> None:
        self._registry.close()

    def _usable(self, schema_id: int | str, topic: str) -> _Schema:
        found = self._schemas.get(schema_id)
        if found is None:
            try:
                found = self._load(schema_id)
            except (NotReadable, UnusableSchema, NotAccepted) as error:
                found = str(error).rstrip(".")
            self._schemas[schema_id] = found
        if isinstance(found, str):
            raise NotReadable(found)
        subjects, names = found.reader.subjects, found.reader.record_names
        if subjects is not None and (
            problem := subject_problem(topic, "value", subjects, names, stored=self._stored)
        ):
            raise NotReadable(problem.rstrip("."))
        return found

    def _load(self, schema_id: int | str) -> _Schema:
        schema = self._registry.schema(schema_id)
        kind = schema.schema_type or "AVRO"
        if kind not in ("AVRO", "JSON"):
            raise NotReadable(f"values with a schema of the type {kind} cannot be edited")
        if schema.references or schema.rule_set is not None:
            raise NotReadable("values whose schema has references or rules cannot be edited")
        reader = make_reader(SchemaText(kind, schema.schema_str or "", {}))
        subjects = self._registry.subjects(schema_id) if isinstance(schema_id, int) else None
        number = schema_id if isinstance(schema_id, int) else 1  # only the prefix has it, which is not used
        write = make_writer(kind.lower())(self._registry.client, schema, number)
        return _Schema(
            Reader(reader.format, reader.read, reader.record_names, subjects),
            write,
            getattr(write, "_parsed", None),
        )


def as_json(document: Any) -> Any:
    """Return a decoded value in its form in JSON: times in ISO 8601, decimals as text, bytes in hexadecimal."""
    if isinstance(document, dict):
        return {name: as_json(item) for name, item in document.items()}
    if isinstance(document, list | tuple):
        return [as_json(item) for item in document]
    if isinstance(document, bytes):
        return f"0x{document.hex()}"
    if isinstance(document, datetime | date | time):
        return document.isoformat()
    return str(document) if isinstance(document, Decimal | UUID) else json_document.natural(document)


def like(before: Any, after: Any) -> Any:
    """Return a text as the type of the value that it replaces, where its form is that of `as_json`; else unchanged."""
    if not isinstance(after, str):
        return after
    for kind, read in _FROM_TEXT:
        if type(before) is kind:
            try:
                return read(after)
            except (ValueError, InvalidOperation):
                return after
    return after


_FROM_TEXT: Sequence[tuple[type, Callable[[str], Any]]] = (
    (datetime, datetime.fromisoformat),
    (date, date.fromisoformat),
    (time, time.fromisoformat),
    (Decimal, Decimal),
    (UUID, UUID),
    (bytes, lambda text: bytes.fromhex(text.removeprefix("0x"))),
)


def _read(tagged: SchemaTagged, schema: _Schema) -> Any:
    if schema.parsed is None:
        try:
            return json_document.parse(tagged.payload)
        except NotJson as error:
            raise NotReadable(str(error)) from None
    from fastavro import schemaless_reader

    try:
        return schemaless_reader(BytesIO(tagged.payload), schema.parsed, None)
    except Exception:  # noqa: BLE001  fastavro raises many types for bytes that do not fit
        raise NotReadable("the bytes do not fit the schema") from None


def _payload(schema: _Schema, document: Any, topic: str) -> bytes:
    from confluent_kafka.serialization import MessageField, SerializationContext

    value = document if schema.parsed is not None else json_document.natural(document)
    try:
        data = schema.write(value, SerializationContext(topic, MessageField.VALUE, []))
    except Exception as error:
        raise _misfit(error, schema, value) from error
    # The digits of unchanged numbers stay as they are; the serializer only checks a value with a JSON schema.
    return json_document.write(document) if schema.parsed is None else (data or b"")[_PREFIX:]


def _misfit(error: Exception, schema: _Schema, value: Any) -> NotAccepted:
    """Return the error with the place. A JSON schema's own text quotes the value, which may be masked."""
    cause: Any = error.__context__
    if hasattr(cause, "absolute_path"):  # jsonschema's ValidationError
        place = field_path(list(cause.absolute_path))
        return InvalidMessage(f"At value{place}: it does not meet {cause.validator!r} of the schema.")
    return not_accepted(error, schema.write, value)
