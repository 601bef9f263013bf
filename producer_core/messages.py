"""Messages: their ids, their status, and the encoding of values, keys and headers."""

from __future__ import annotations

import hashlib
import itertools
import os
import struct
import time
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from numbers import Real
from typing import Any, NamedTuple

import orjson

from producer_core._internal.id_header import ID_HEADER as ID_HEADER
from producer_core._internal.id_header import id_text as id_text
from producer_core._internal.id_header import record_id as record_id
from producer_core._internal.json_values import AS_TEXT, path_to, unsupported_type
from producer_core._internal.user_callbacks import short_repr
from producer_core.errors import ConfigError, InvalidMessage, NotAccepted

ORIGINAL_TIMESTAMP = "pc-original-timestamp"
"""Name of the header with the first timestamp of a replayed record, in milliseconds."""
REVISION = "pc-revision"
"""Name of the header of an edited record: the number of the revision that was sent, as text."""
REPLACES = "pc-replaces"
"""Name of the header of an edited record that has a new id: the id of the message that it replaces, as text."""

TIME_FIELDS = ("timestamp", "message_id", "processing_time")
"""Top-level fields that content deduplication ignores by default, part of the public API."""

_SEQUENCE = struct.Struct(">Q")
_pack = _SEQUENCE.pack

Headers = Sequence[tuple[str, bytes | None]]


class MessageStatus(Enum):
    """The status of a message, as the application sees it."""

    PENDING = "pending"
    SENT = "sent"
    FAILED = "failed"
    RETRYING = "retrying"
    DLQ = "dlq"
    DUPLICATE = "duplicate"


class Placement(NamedTuple):
    """Holds a record's partition and timestamp. Nearly all messages share one instance."""

    partition: int = -1  # chosen by the partitioner
    timestamp_ms: int = 0  # the time of the send
    computed: bool = False
    """Whether the producer, not the caller, chose the partition. The message's lane then does not depend on it."""


ANYWHERE = Placement()


@dataclass(frozen=True)
class Message:
    """A message as callbacks, hooks and listings see it. A change of status creates a new value."""

    id: str
    topic: str
    key: str | None
    value: Any
    timestamp: datetime
    status: MessageStatus = MessageStatus.PENDING
    retry_count: int = 0
    last_error: str | None = None
    checksum: str | None = None


def new_session() -> uuid.UUID:
    """Return a UUID version 7 (RFC 9562): milliseconds since 1970, then random bits, so that ids sort by time."""
    raw = bytearray(int(time.time() * 1000).to_bytes(6, "big") + os.urandom(10))
    raw[6] = 0x70 | raw[6] & 0x0F
    raw[8] = 0x80 | raw[8] & 0x3F
    return uuid.UUID(bytes=bytes(raw))


def id_bytes(session: uuid.UUID, seq: int) -> bytes:
    """Return an id as the record's header carries it: 24 bytes."""
    return session.bytes + _SEQUENCE.pack(seq)


class SequenceNumbers:
    """Counts up and returns each number once; `take` is one atomic step."""

    def __init__(self, first: int = 0) -> None:
        self._count = itertools.count(first)
        self.take = self._count.__next__

    def peek(self) -> int:
        """Return the number that `take` returns next."""
        return int(repr(self._count)[len("count(") : -1])  # the only way to read it without taking it


class SequenceSpan(NamedTuple):
    """The sequences from `start` up to, not including, `end`, and the session of their ids."""

    start: int
    end: int
    session: uuid.UUID


class MessageIds:
    """Converts a producer's sequences to message ids and back.

    New messages, from the sequence `first` on, get the session of this start. A journal may hold messages of `earlier`
    starts, in ascending order; these keep their ids.
    """

    def __init__(self, session: uuid.UUID, *, first: int = 0, earlier: Sequence[SequenceSpan] = ()) -> None:
        self.session = session
        self.first = first
        self._bytes = session.bytes
        self._earlier = earlier
        self._starts = [span.start for span in earlier]
        self._spans = {span.session.bytes: span for span in earlier}
        self.prefix = f"{session}-"
        """The prefix of every new message's id as text; the sequence follows."""

    def raw(self, seq: int) -> bytes:
        """Return the id of a new message, as the record's header carries it."""
        return self._bytes + _pack(seq)

    def text(self, seq: int) -> str:
        """Return the id of a new message as text."""
        return f"{self.prefix}{seq}"

    def of(self, seq: int) -> bytes:
        """Return the id of any message, new or of an earlier session."""
        if seq >= self.first:
            return self._bytes + _pack(seq)
        place = bisect_right(self._starts, seq) - 1
        if place < 0 or seq >= self._earlier[place].end:
            raise LookupError(f"no session is known for the sequence {seq}")
        return self._earlier[place].session.bytes + _pack(seq)

    def number(self, message_id: bytes) -> int | None:
        """Return the sequence of an id; None for an id that this producer did not assign.

        A journal restored from a copy meets ids that the original assigned after the copy. They are not this producer's.
        """
        session, number = message_id[:16], int.from_bytes(message_id[16:])
        if session == self._bytes:
            return number
        span = self._spans.get(session)
        return number if span is not None and span.start <= number < span.end else None


def parse_id(text: str) -> bytes:
    """Return the 24 bytes of an id written as `uuid-seq`. Raise ValueError if the text is not an id."""
    session, _, seq = text.rpartition("-")
    number = int(seq)
    if not 0 <= number < 1 << 64:
        raise ValueError(f"{text!r} is not a message id")
    return _session_bytes(session) + _pack(number)


def check_message_id(message_id: Any) -> None:
    """Raise ConfigError unless the argument is a string. A string that is not an id is valid: no message has it."""
    if not isinstance(message_id, str):
        raise ConfigError(
            f"{short_repr(message_id)} is not a message id.", fix="Pass the id that send_message returned."
        )


@lru_cache(maxsize=256)
def _session_bytes(text: str) -> bytes:
    return uuid.UUID(text).bytes


def encode_value(value: Any, serializer: Callable[[Any], bytes | None] | None = None) -> bytes | None:
    """Return the bytes of a value. Bytes pass through, None is a tombstone, everything else becomes compact JSON.

    NumPy numbers become numbers, datetimes ISO 8601, sets and all kinds of tuples lists, all kinds of mappings objects;
    UUID, Decimal, Path and the other types of docs/reference/values.md become text. NaN, infinity and values of any
    other type have no JSON form and raise InvalidMessage, which names the place inside the value.
    """
    if serializer is None and type(value) is dict:  # the most frequent case
        try:
            data = _dumps(value, _convert, _OPTIONS)
        except (TypeError, ValueError):  # needs the slower path
            return _to_json(value)
        if data.rfind(b"null") >= 0:  # as in _serialize
            _check_for_nan(value)
        return _join((data, b"")) if len(data) < _LARGE else data  # as in _compact_copy
    if value is None or isinstance(value, bytes):
        return value
    if serializer is not None:
        serialized = _run_serializer(serializer, value)
        if serialized is None:
            raise InvalidMessage(
                "The serializer returned None for a value. A missing return statement would delete keys on compacted topics.",
                fix="Return bytes. For a tombstone, send value=None.",
            )
        return serialized
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return _to_json(value)


def decode_value(value: bytes | None) -> Any:
    """Return a value's content: JSON is decoded, other bytes are unchanged."""
    try:
        return None if value is None else orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def encode_key(key: Any, serializer: Callable[[Any], bytes | None] | None = None) -> bytes | None:
    """Return the bytes of a key: str as UTF-8, bytes unchanged, int as its decimal text."""
    if key is None:
        return None
    if serializer is not None:
        return _run_serializer(serializer, key)
    if isinstance(key, str):
        try:
            return key.encode()
        except UnicodeEncodeError as error:
            raise InvalidMessage(f"The key is not valid text: {error}.") from error
    if isinstance(key, bytes):
        return key
    if isinstance(key, int) and not isinstance(key, bool):
        try:
            return str(key).encode()
        except ValueError as error:  # beyond 4,300 digits
            raise InvalidMessage(
                "The key is a number with thousands of digits.", fix="Pass a shorter key."
            ) from error
    if isinstance(key, uuid.UUID):
        return str(key).encode()
    if (
        hasattr(key, "item")
        and not getattr(key, "ndim", 0)
        and isinstance(item := key.item(), int | str | bytes)
    ):
        return encode_key(item)
    raise InvalidMessage(
        f"A key must be str, bytes or int, not {type(key).__name__}.", fix="Convert it, or pass key=str(key)."
    )


_HEADERS = "Headers are pairs of a name and a value, or a dict."


def encode_headers(headers: Mapping[str, Any] | Headers | None) -> list[tuple[str, bytes | None]]:
    """Return user headers in Kafka's form: order and duplicates are kept, text becomes UTF-8, None stays null."""
    if not headers:
        return []
    if not isinstance(headers, Iterable):
        raise InvalidMessage(_HEADERS)
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    encoded: list[tuple[str, bytes | None]] = []
    for pair in pairs:
        try:
            name, value = pair
        except (TypeError, ValueError) as error:
            raise InvalidMessage(_HEADERS) from error
        if isinstance(pair, str | bytes):  # "ab" would be the name "a" and the value "b"
            raise InvalidMessage(f"{_HEADERS} {short_repr(pair)} is neither.")
        if name == ID_HEADER:
            raise InvalidMessage(f"The header {ID_HEADER!r} carries the message id; choose another name.")
        if name == ORIGINAL_TIMESTAMP:
            raise InvalidMessage(
                f"The header {ORIGINAL_TIMESTAMP!r} carries the first timestamp of a replayed record.",
                fix="Choose another name, or pass timestamp_ms=.",
            )
        if not isinstance(name, str) or not (value is None or isinstance(value, str | bytes)):
            raise InvalidMessage(
                f"Header {short_repr(name)} must have a str name and a str, bytes or None value."
            )
        if "\0" in name:
            raise InvalidMessage(
                f"Header {name!r} has a NUL in its name; the Kafka client would truncate the name there."
            )
        try:
            name.encode()
            encoded.append((name, value.encode() if isinstance(value, str) else value))
        except UnicodeEncodeError as error:
            raise InvalidMessage(f"Header {name!r} is not valid text: {error}.") from error
    return encoded


def checksum(topic: str, key: bytes | None, value: Any, *, ignored: Sequence[str] = TIME_FIELDS) -> str:
    """Return the SHA-256 of topic, key and content without the ignored top-level fields. Key order does not matter.

    The result is the same in every process. Raise InvalidMessage for a value that has no JSON form, even if a user's
    serializer can write it.
    """
    if (type(value) is dict or isinstance(value, Mapping)) and not value.keys().isdisjoint(ignored):
        value = {name: item for name, item in value.items() if name not in ignored}
    if value is None or isinstance(value, bytes):
        body = b"n" if value is None else b"b" + value
    else:
        try:
            body = b"j" + _serialize(value, orjson.OPT_SORT_KEYS)
        except InvalidMessage as error:
            raise InvalidMessage(
                f"Deduplication cannot compare this value: {error.what}",
                fix="Pass dedup_key= with text that identifies the message.",
            ) from error
    own = b"" if key is None else b"k" + key
    whole = (_length_prefixed(topic), _pack(len(own)), own, _pack(len(body)), body)
    return hashlib.sha256(_join(whole)).hexdigest()


@lru_cache(maxsize=256)
def _length_prefixed(topic: str) -> bytes:
    name = topic.encode()
    return _pack(len(name)) + name


def _run_serializer(serializer: Callable[[Any], bytes | None], value: Any) -> bytes | None:
    try:
        data = serializer(value)
    except NotAccepted:
        raise
    except Exception as error:
        raise InvalidMessage(f"The serializer failed: {error}.") from error
    if not (data is None or isinstance(data, bytes)):
        raise InvalidMessage(f"A serializer must return bytes, not {type(data).__name__}.")
    return data and _compact_copy(data)


_OPTIONS = orjson.OPT_SERIALIZE_NUMPY
_dumps = orjson.dumps
_join = b"".join
_LARGE = 1 << 15
"""Bytes from which a copy costs more than the memory it saves."""


def _to_json(value: Any) -> bytes:
    return _compact_copy(_serialize(value))


def _serialize(value: Any, option: int = 0) -> bytes:
    try:
        return _dump(value, option)
    except InvalidMessage as error:
        raise _with_path(error, value) from error.__cause__


def _check_for_nan(value: Any) -> None:
    try:
        _reject_nan(value)
    except InvalidMessage as error:
        raise _with_path(error, value) from None


def _with_path(error: InvalidMessage, value: Any) -> InvalidMessage:
    """Return the same error with the place inside the value that caused it."""
    try:
        path = path_to(value, _is_rejected)
    except Exception:  # noqa: BLE001  a property or a method of the caller's own
        return error
    return InvalidMessage(f"At value{path}: {error.what}", fix=error.fix) if path else error


def _is_rejected(value: Any) -> bool:
    try:
        _dump(value)
    except InvalidMessage:
        return True
    return False


def _dump(value: Any, option: int = 0) -> bytes:
    """Return the JSON of a value. An error names no place inside it."""
    try:
        try:
            data = _dumps(value, _convert, _OPTIONS | option)
        except TypeError:  # perhaps a key that is not text: the option for those is slower
            data = orjson.dumps(value, _convert, _OPTIONS | option | orjson.OPT_NON_STR_KEYS)
            _reject_equal_keys(data)
    except (TypeError, ValueError) as error:
        if isinstance(error.__cause__, InvalidMessage):  # raised by _convert, wrapped by orjson
            raise error.__cause__ from None
        if "Dict key" in str(error):
            raise InvalidMessage(
                "A key inside the value is not text, a number, a date or a UUID.",
                fix="Convert it to text.",
            ) from error
        raise InvalidMessage(f"The value cannot be written as JSON: {error}.") from error
    # orjson writes NaN as null, so check only output with a null. `in` takes longer than orjson did, rfind does not.
    if data.rfind(b"null") >= 0:
        _reject_nan(value)
    return data


def _compact_copy(data: bytes) -> bytes:
    """Return the bytes in memory of their own size.

    orjson returns the beginning of a larger buffer. Kept until the message is settled, each message of 200 bytes
    occupied a page of 4 kB and cost a page fault, 2 µs; a copy costs 0.1 µs.
    """
    return _join((data, b"")) if len(data) < _LARGE else data


def _convert(value: Any) -> Any:
    """Convert a value for orjson, or to its documented text. Raise InvalidMessage for any other type."""
    if isinstance(value, Decimal):
        return _decimal_text(value)
    if isinstance(value, set | frozenset):  # iteration order differs from process to process
        return sorted(value, key=_to_json)
    if isinstance(value, tuple):  # a named tuple
        return list(value)
    if isinstance(value, date | time_of_day):  # a subclass, such as pandas.Timestamp
        if value != value:  # pandas.NaT
            raise InvalidMessage("NaT has no JSON form.", fix="Use None, or leave the field out.")
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        raise InvalidMessage(
            "Bytes inside a value have no JSON form.", fix="Encode them as text (base64) first."
        )
    if isinstance(value, float):
        return _without_nan(float(value))
    if hasattr(value, "flags") and hasattr(value, "tobytes") and not value.flags["C_CONTIGUOUS"]:
        return value.copy(order="C")  # a slice or a transposed array
    if hasattr(value, "tolist") and not isinstance(plain := value.tolist(), type(value)):
        return _without_nan(plain)
    if isinstance(value, Mapping):  # not a dict
        return dict(value)
    if isinstance(value, AS_TEXT):
        return str(value)
    if isinstance(value, Real):  # numpy.longdouble
        return _without_nan(float(value))
    if isinstance(value, Sequence):  # a deque, a range, a UserList
        return list(value)
    raise unsupported_type(value)


def _without_nan(value: Any) -> Any:
    _reject_nan(value)
    return value


def _decimal_text(value: Decimal) -> str:
    if not value.is_finite():
        raise InvalidMessage(f"{value} has no JSON form.", fix="Use None, or leave the field out.")
    return str(value)


def _reject_nan(value: Any) -> None:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Mapping):
            stack.extend(item)
            stack.extend(item.values())
        elif isinstance(item, list | tuple | set | frozenset):
            stack.extend(item)
        elif isinstance(item, Enum):
            stack.append(item.value)
        elif is_dataclass(item) and not isinstance(item, type):
            stack.extend(getattr(item, one.name, None) for one in fields(item))
        elif (isinstance(item, float) or type(item).__module__ == "numpy") and _has_nan(item):
            raise InvalidMessage(
                "NaN and infinity have no JSON form.", fix="Use None, or leave the field out."
            )


def _reject_equal_keys(data: bytes) -> None:
    """Raise InvalidMessage if two keys became the same text: a JSON reader keeps one, so its output is shorter."""
    if len(orjson.dumps(orjson.loads(data))) != len(data):
        raise InvalidMessage(
            "Two keys of a dict become the same text in JSON, such as 1 and '1'; a reader would keep only one.",
            fix="Use keys of one type.",
        )


def _has_nan(item: Any) -> bool:
    if type(item).__module__ == "numpy":
        return _has_nan(item.tolist())
    if isinstance(item, list):
        return any(map(_has_nan, item))
    try:
        return bool(item - item != 0)  # true for NaN and the infinities, false for every finite number
    except TypeError:
        return False
