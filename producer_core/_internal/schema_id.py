"""Recognize the schema id of a key or value, in Confluent's wire format or in a header."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Part = Literal["key", "value"]
Headers = Sequence[tuple[str, bytes | None]]

_MAX_ID = 2**31 - 1
_ID, _GUID = 0, 1
"""The first byte: an id of four bytes follows, or a GUID of sixteen."""


@dataclass(frozen=True, slots=True)
class SchemaTagged:
    """A schema id, or a GUID as text, and the bytes that the schema describes.

    With Protobuf, the indexes of the message type come first: in `payload`, or in `indexes` if a header has the id.
    """

    schema_id: int | str
    payload: bytes
    indexes: bytes | None = None


def schema_tagged(data: bytes | None, headers: Headers, part: Part) -> SchemaTagged | None:
    """Return the schema id of these bytes, None without one. The header comes first, as in confluent-kafka.

    The bytes may have no schema: every value of five or more bytes that begins with a zero byte looks as if it had one.
    """
    if data is None:
        return None
    written = next((value for name, value in headers if name == f"__{part}_schema_id"), None)
    if written is not None:
        return _from_header(written, data)
    if len(data) < 5 or data[0] != _ID or (schema_id := _id(data)) is None:
        return None
    return SchemaTagged(schema_id, data[5:])


def _from_header(written: bytes, data: bytes) -> SchemaTagged | None:
    if len(written) >= 17 and written[0] == _GUID:
        return SchemaTagged(str(uuid.UUID(bytes=written[1:17])), data, written[17:])
    if len(written) >= 5 and written[0] == _ID and (schema_id := _id(written)) is not None:
        return SchemaTagged(schema_id, data, written[5:])
    return None


def _id(data: bytes) -> int | None:
    """Return the id in four bytes; None for a number that no registry gives: they count from 1 to 2^31 - 1."""
    found = int.from_bytes(data[1:5], "big")
    return found if 0 < found <= _MAX_ID else None
