"""The values of dead-letter headers as bytes: numbers in two encodings, and text; nothing here raises."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

_SHOWN = 12  # bytes of a header that is wrong, in a note
_DECIMAL = re.compile(rb"-?[0-9]{1,19}")


class DecodedHeader(NamedTuple):
    """A value, None when there is none to be had; and what was wrong with the bytes."""

    value: Any
    trouble: str | None = None


def text(raw: bytes) -> DecodedHeader:
    try:
        return DecodedHeader(raw.decode())
    except UnicodeDecodeError:
        return DecodedHeader(raw.decode(errors="replace"), f"is not UTF-8 ({shown(raw)})")


def decimal(raw: bytes) -> DecodedHeader:
    """A count, a partition, an offset or a time as decimal text; these are never below 0."""
    if not _DECIMAL.fullmatch(raw):
        return DecodedHeader(None, f"is not a number ({shown(raw)})")
    return _not_negative(int(raw))


def int32(raw: bytes) -> DecodedHeader:
    """Big-endian, 4 bytes."""
    return _fixed(raw, 4)


def int64(raw: bytes) -> DecodedHeader:
    """Big-endian, 8 bytes."""
    return _fixed(raw, 8)


def attempts(raw: bytes) -> DecodedHeader:
    """Spring's retry topics: 4 bytes big-endian, a single byte in their first versions."""
    return _fixed(raw, len(raw) if len(raw) == 1 else 4)


def big_integer(raw: bytes) -> DecodedHeader:
    """Java's `BigInteger.toByteArray`: as few bytes as it takes, big-endian, two's complement."""
    if not 1 <= len(raw) <= 8:
        return DecodedHeader(None, f"has {_bytes(len(raw))} instead of 1 to 8 ({shown(raw)})")
    return _not_negative(int.from_bytes(raw, "big", signed=True))


def shown(raw: bytes) -> str:
    """The first bytes in hexadecimal."""
    return f"0x{raw[:_SHOWN].hex()}{'…' if len(raw) > _SHOWN else ''}"


def cut(text: str, most: int) -> bytes:
    """UTF-8 of at most so many bytes, cut between two characters, with an ellipsis where something is missing."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= most:
        return raw
    return raw[: most - 3].decode(errors="ignore").encode() + "…".encode()


def _fixed(raw: bytes, size: int) -> DecodedHeader:
    if len(raw) == size:
        return _not_negative(int.from_bytes(raw, "big", signed=True))
    if _DECIMAL.fullmatch(raw):
        value, trouble = decimal(raw)
        return DecodedHeader(value, trouble or "is text where a binary number belongs, and is read as text")
    return DecodedHeader(None, f"has {_bytes(len(raw))} instead of {size} ({shown(raw)})")


def _not_negative(number: int) -> DecodedHeader:
    return DecodedHeader(number) if number >= 0 else DecodedHeader(None, f"is {number}")


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count} bytes"
