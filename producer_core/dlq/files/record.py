"""Convert dead letters to records of a file: raw with all fields, or masked as text."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from producer_core._internal.masking import mask_headers, mask_text
from producer_core.dlq.codec import LETTER_COLUMNS, read_attempts, read_headers
from producer_core.dlq.displayed_body import displayed_key, displayed_value
from producer_core.dlq.files.revision_fields import revisions_displayed, revisions_raw
from producer_core.dlq.revisions.revision import Revision
from producer_core.kafka.schemas.decoder import SchemaDecoder

Record = dict[str, Any]

COLUMNS = (
    *(name for name in LETTER_COLUMNS if name != "attempts"),
    *("value", "headers", "timestamp_ms", "attempts", "revisions"),
)
_TEXTS = ("verdict_reason", "error_text", "source")
_MOMENTS = ("accepted_at", "failed_at", "state_at")


def record_of(
    dead_letter: Mapping[str, Any], body: Mapping[str, Any] | None, revisions: Sequence[Revision] = ()
) -> Record:
    """Return the record for rows of the store. Without a body the value is None, even if `value_size` is set.

    The record is the original; `revisions` has its edits.
    """
    body = body or {"value": None, "headers": "[]", "timestamp_ms": None, "attempts": "[]"}
    return {
        **dead_letter,
        "value": body["value"],
        "headers": read_headers(body["headers"]),
        "timestamp_ms": body["timestamp_ms"],
        "attempts": [(one.failed_at, one.code, one.text) for one in read_attempts(body["attempts"])],
        "revisions": tuple(revisions),
    }


def displayed(record: Record, *, reveal: bool = False, decoder: SchemaDecoder | None = None) -> Record:
    """Return the record for display: keys, values and headers as text, with secrets masked unless `reveal` is set.

    `decoder` decodes a key or value with a schema id.
    """
    text = _unchanged if reveal else mask_text
    return {
        **record,
        **{name: None if record[name] is None else text(record[name]) for name in _TEXTS},
        "key": displayed_key(
            record["key"], record["headers"], decoder, topic=record["topic"], reveal=reveal
        ).one,
        "value": displayed_value(
            record["value"], record["headers"], decoder, topic=record["topic"], reveal=reveal
        ).one,
        "headers": [(name, value) for name, value in mask_headers(record["headers"], reveal=reveal)],
        "attempts": [(at, code, text(error_text)) for at, code, error_text in record["attempts"]],
        "revisions": revisions_displayed(record["revisions"]),
    }


def raw_line(record: Record) -> bytes:
    """Return a line of JSON with all fields; bytes are base64 in fields named `…_base64`.

    An edited record has its value in `original_value_base64`, so that a version without revisions rejects the line.
    """
    raw = ("key", "value", "headers", "revisions")
    value = {name: item for name, item in record.items() if name not in raw}
    value["key_base64"] = _base64(record["key"])
    value["original_value_base64" if record["revisions"] else "value_base64"] = _base64(record["value"])
    value["headers_base64"] = [[name, _base64(item)] for name, item in record["headers"]]
    if record["revisions"]:
        value["revisions"] = revisions_raw(record["revisions"])
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)


def masked_line(record: Record, decoder: SchemaDecoder | None = None) -> bytes:
    """Return a line of JSON for display, marked with `"masked": true`."""
    return orjson.dumps(
        {**displayed(record, decoder=decoder), "masked": True}, option=orjson.OPT_APPEND_NEWLINE
    )


def as_text(value: Any) -> str | None:
    """Return a value of a displayed record as text."""
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()


def cells(record: Record) -> list[str | None]:
    """Return a displayed record as table cells, with times in ISO 8601 in UTC."""
    return [_cell(name, record[name]) for name in COLUMNS]


def _cell(name: str, value: Any) -> str | None:
    if name in _MOMENTS and value is not None:
        return _moment(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, int | float) and name != "value" else as_text(value)


def _moment(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).isoformat()
    except (OverflowError, ValueError, OSError):  # outside the range of datetime
        return str(at)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _unchanged(text: str) -> str:
    return text
