"""The header with a record's message id: its name, its two forms, and how to read either of them.

The binary form has 24 bytes: 16 of the session, then the sequence, big-endian. The text form is the id as people see it,
`uuid-seq` in ASCII: a canonical UUID of 36 characters, a hyphen, and the sequence without leading zeros, 38 to 57 bytes.
The lengths differ, so that a reader needs no setting: it accepts both at any time, also mixed in one topic.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, get_args

from producer_core._internal.user_callbacks import short_repr
from producer_core.errors import ConfigError

ID_HEADER = "pc-id"
"""Name of the header with a record's id."""

ID_FORMAT_SETTING = "message_id_format"
ID_FORMAT_KEY = "message.id.format"
"""The setting among those of a client that writes text. `delivery.sending_client` removes it before librdkafka sees it."""
IdFormat = Literal["binary", "text"]
DEFAULT_ID_FORMAT: IdFormat = "binary"

_SIZE = 24
_LIMIT = 1 << 64
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_NUMBER = "(0|[1-9][0-9]{0,19})"
_TEXT = re.compile(f"({_UUID})-{_NUMBER}".encode())


def id_format(value: object) -> IdFormat:
    """Return the setting `message_id_format`. Raise ConfigError for a value that is not valid."""
    match value:
        case "binary" | "text":
            return value
    raise ConfigError(
        f"{ID_FORMAT_SETTING}={short_repr(value)} is not a format.",
        fix=f"Use {' or '.join(get_args(IdFormat))}.",
    )


def header_id(value: bytes) -> bytes | None:
    """Return the 24 bytes of the id in a header's value of either form; None for a value that is not an id."""
    if len(value) == _SIZE:
        return value
    found = _TEXT.fullmatch(value)
    if found is None or (seq := int(found[2])) >= _LIMIT:
        return None
    return bytes.fromhex(found[1].replace(b"-", b"").decode()) + seq.to_bytes(8)


def id_text(raw: bytes) -> str:
    """Return an id of 24 bytes as text: `uuid-seq`."""
    return f"{_session_text(raw[:16])}-{int.from_bytes(raw[16:])}"


@lru_cache(maxsize=256)
def _session_text(raw: bytes) -> str:
    return str(uuid.UUID(bytes=raw))


def text_header(value: bytes) -> bytes:
    """Return the header's text form of an id of 24 bytes."""
    return id_text(value).encode()


def record_id(headers: Iterable[tuple[str, bytes | None]] | None, header: str = ID_HEADER) -> bytes | None:
    """Return the 24 bytes of the message id in a record's headers; None for a record of another program.

    With several headers of that name, the first with an id counts.
    """
    for name, value in headers or ():
        if name == header and isinstance(value, bytes):
            if len(value) == _SIZE:  # the default form, without a call
                return value
            if (found := header_id(value)) is not None:
                return found
    return None


def spark_record_id() -> str:
    """Return Spark SQL that gives what `record_id` returns, from the column `headers` of Spark's Kafka source.

    A producer writes its header first: the slow filter runs only for records without an id there.
    """
    first = "get(headers, 0)"
    return f"""case when {first}.key = '{ID_HEADER}' and length({first}.value) = {_SIZE} then {first}.value
        when {first}.key = '{ID_HEADER}' and {_is_text(f"{first}.value")} then {_from_text(f"{first}.value")}
        else get(transform(
            filter(headers, one -> one.key = '{ID_HEADER}' and (length(one.value) = {_SIZE} or {_is_text("one.value")})),
            one -> if(length(one.value) = {_SIZE}, one.value, {_from_text("one.value")})), 0) end"""


def _is_text(value: str) -> str:
    # In Java, $ also matches before a final line break. The last group matches only at the very end.
    pattern = f"^{_UUID}-{_NUMBER}(?!.|[^.])"
    number = f"substring(cast({value} as string), 38)"
    return (
        f"(length({value}) between 38 and 57 and cast({value} as string) rlike '{pattern}' "
        f"and (length({value}) < 57 or {number} <= '{_LIMIT - 1}'))"
    )


def _from_text(value: str) -> str:
    text = f"cast({value} as string)"
    number = f"conv(substring({text}, 38), 10, 16)"
    return f"unhex(concat(replace(substring({text}, 1, 36), '-', ''), lpad({number}, 16, '0')))"
