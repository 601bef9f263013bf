"""Decode the values of dead-letter headers: text, and numbers as text or binary. No function raises."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

_SHOWN = 12  # bytes of an invalid header in a note
_DECIMAL = re.compile(rb"-?[0-9]{1,19}")


class DecodedHeader(NamedTuple):
    """A decoded value, or None, and a description of the problem with the bytes, if any."""

    value: Any
    trouble: str | None = None


def text(raw: bytes) -> DecodedHeader:
    try:
        return DecodedHeader(raw.decode())
    except UnicodeDecodeError:
        return DecodedHeader(raw.decode(errors="replace"), f"is not UTF-8 ({shown(raw)})")


def decimal(raw: bytes) -> DecodedHeader:
    """Decode a count, partition, offset or time from decimal text. Negative numbers are invalid."""
    if not _DECIMAL.fullmatch(raw):
        return DecodedHeader(None, f"is not a number ({shown(raw)})")
    return _not_negative(int(raw))


def int32(raw: bytes) -> DecodedHeader:
    """Decode 4 bytes, big-endian."""
    return _fixed(raw, 4)


def int64(raw: bytes) -> DecodedHeader:
    """Decode 8 bytes, big-endian."""
    return _fixed(raw, 8)


def attempts(raw: bytes) -> DecodedHeader:
    """Decode the attempts of Spring's retry topics: 4 bytes, big-endian; 1 byte in early versions."""
    return _fixed(raw, len(raw) if len(raw) == 1 else 4)


def big_integer(raw: bytes) -> DecodedHeader:
    """Decode Java's `BigInteger.toByteArray`: the fewest possible bytes, big-endian, two's complement."""
    if not 1 <= len(raw) <= 8:
        return DecodedHeader(None, f"has {_bytes(len(raw))} instead of 1 to 8 ({shown(raw)})")
    return _not_negative(int.from_bytes(raw, "big", signed=True))


def shown(raw: bytes) -> str:
    """Return the first bytes in hexadecimal."""
    return f"0x{raw[:_SHOWN].hex()}{'…' if len(raw) > _SHOWN else ''}"


def truncate(text: str, max_bytes: int) -> bytes:
    """Return the text as UTF-8, truncated at a character to at most `max_bytes` and marked with an ellipsis."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= max_bytes:
        return raw
    return raw[: max_bytes - 3].decode(errors="ignore").encode() + "…".encode()


def _fixed(raw: bytes, size: int) -> DecodedHeader:
    if len(raw) == size:
        return _not_negative(int.from_bytes(raw, "big", signed=True))
    if _DECIMAL.fullmatch(raw):
        value, trouble = decimal(raw)
        return DecodedHeader(value, trouble or "is decimal text instead of a binary number")
    return DecodedHeader(None, f"has {_bytes(len(raw))} instead of {size} ({shown(raw)})")


def _not_negative(number: int) -> DecodedHeader:
    return DecodedHeader(number) if number >= 0 else DecodedHeader(None, f"is {number}")


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count} bytes"
