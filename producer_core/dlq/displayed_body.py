"""Display the key and value of a dead letter: decoded if they have a schema id, masked unless revealed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from producer_core._internal.masking import display_decoded, display_key, display_value, is_hidden
from producer_core._internal.schema_id import Headers, schema_tagged
from producer_core.kafka.schemas.decoder import DecodedValue, SchemaDecoder, decoder_for

if TYPE_CHECKING:
    from producer_core.store import Store


def decoder_of(store: Store, given: Mapping[str, Any] | None = None) -> SchemaDecoder:
    """Return a decoder with these settings of a registry, or those of the environment, or the store's address."""
    return decoder_for(lambda: store.get_setting("schema_registry"), given)


def keys_with_schema(keys: Iterable[tuple[str, bytes | None]]) -> list[str]:
    """Return the message ids whose keys look as if they begin with a schema id: a header may name another one."""
    return [message_id for message_id, key in keys if schema_tagged(key, (), "key") is not None]


@dataclass(frozen=True, slots=True)
class DisplayedBody:
    """A key or value for display. `schema_id` is None without one; `note` says why a value with one is not decoded."""

    value: Any
    schema_id: int | str | None = None
    format: str = ""
    note: str = ""

    @property
    def schema(self) -> str:
        """Return ", Avro, schema id 7", or nothing without a schema id."""
        if self.schema_id is None:
            return ""
        return (
            f", {self.format}, schema id {self.schema_id}" if self.format else f", schema id {self.schema_id}"
        )

    @property
    def one(self) -> Any:
        """Return the value, or one text with the schema id, the size of the bytes and the reason."""
        if not self.note:
            return self.value
        text = self.value if isinstance(self.value, str) else orjson.dumps(self.value).decode()
        return f"schema id {self.schema_id}, {text}. {self.note}"


def displayed_value(
    data: bytes | None, headers: Headers, decoder: SchemaDecoder | None, *, topic: str, reveal: bool = False
) -> DisplayedBody:
    """Return the value of a dead letter of the topic for display."""
    if decoder is None or (not reveal and is_hidden("values")):
        return DisplayedBody(display_value(data, reveal=reveal))
    found = decoder.decode(data, headers, "value", topic)
    return _body(
        found, display_value(data, reveal=reveal) if found is None or found.problem else None, reveal
    )


def displayed_key(
    data: bytes | None, headers: Headers, decoder: SchemaDecoder | None, *, topic: str, reveal: bool = False
) -> DisplayedBody:
    """Return the key of a dead letter of the topic for display. Its `value` is text or None, also if it is decoded."""
    if decoder is None or (not reveal and is_hidden("keys")):
        return DisplayedBody(display_key(data, reveal=reveal))
    found = decoder.decode(data, headers, "key", topic)
    body = _body(found, display_key(data, reveal=reveal) if found is None or found.problem else None, reveal)
    if body.value is None or isinstance(body.value, str):
        return body
    return DisplayedBody(orjson.dumps(body.value).decode(), body.schema_id, body.format, body.note)


def _body(found: DecodedValue | None, otherwise: Any, reveal: bool) -> DisplayedBody:
    if found is None:
        return DisplayedBody(otherwise)
    if found.problem:
        return DisplayedBody(otherwise, found.schema_id, found.format, found.problem)
    return DisplayedBody(display_decoded(found.value, reveal=reveal), found.schema_id, found.format)
