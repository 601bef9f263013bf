"""The values of dead-letter headers: numbers in two encodings, and text. Invalid bytes are described."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core.dlq.topics import header_values


@pytest.mark.parametrize(
    ("read", "raw", "value"),
    [
        (header_values.text, b"orders", "orders"),
        (header_values.text, b"", ""),
        (header_values.decimal, b"42", 42),
        (header_values.int32, b"\x00\x00\x00\x2a", 42),
        (header_values.int64, b"\x00" * 7 + b"\x2a", 42),
        (header_values.attempts, b"\x03", 3),
        (header_values.attempts, b"\x00\x00\x00\x03", 3),
        (header_values.big_integer, b"\x01\x00", 256),
    ],
)
def test_a_valid_value_is_read_without_a_note(read, raw, value):
    assert read(raw) == (value, None)


@pytest.mark.parametrize(
    ("read", "raw", "value", "trouble"),
    [
        (header_values.text, b"a\xff", "a�", "is not UTF-8 (0x61ff)"),
        (header_values.decimal, b"4.2", None, "is not a number (0x342e32)"),
        (header_values.decimal, b"-1", None, "is -1"),
        (header_values.int32, b"\xff" * 4, None, "is -1"),
        (header_values.int32, b"12", 12, "is decimal text instead of a binary number"),
        (header_values.int32, b"\x00", None, "has 1 byte instead of 4 (0x00)"),
        (header_values.big_integer, b"", None, "has 0 bytes instead of 1 to 8 (0x)"),
        (header_values.big_integer, b"\x80", None, "is -128"),
    ],
)
def test_an_invalid_value_has_a_note(read, raw, value, trouble):
    assert read(raw) == (value, trouble)


@given(st.binary(max_size=40))
def test_arbitrary_bytes_never_raise_an_exception(raw):
    for read in (
        header_values.text,
        header_values.decimal,
        header_values.int32,
        header_values.int64,
        header_values.attempts,
        header_values.big_integer,
    ):
        found = read(raw)
        assert found.value is not None or found.trouble


def test_long_bytes_are_shown_shortened():
    assert header_values.shown(bytes(12)) == "0x" + "00" * 12
    assert header_values.shown(bytes(13)) == "0x" + "00" * 12 + "…"


@given(st.text(max_size=30), st.integers(3, 40))
def test_a_text_is_truncated_between_two_characters(text, most):
    raw = header_values.truncate(text, most)

    assert len(raw) <= most
    assert raw.decode() == text or raw.decode().endswith("…")
