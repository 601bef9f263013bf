"""Schema ids in the bytes of keys and values, and in their headers."""

from __future__ import annotations

import uuid

import pytest

from producer_core._internal.schema_id import SchemaTagged, schema_tagged

GUID = uuid.UUID("89791762-2336-4186-9674-299b90a802e2")


def test_a_value_in_confluents_wire_format_has_its_id_and_payload():
    assert schema_tagged(b"\0\0\0\1\2abc", (), "value") == SchemaTagged(258, b"abc")


@pytest.mark.parametrize(
    "data", [None, b"", b"\0", b"\0\0\0\1", b'{"a": 1}', b"\0\0\0\0\0\0\0\7", b"\1\0\0\0\1x"]
)
def test_other_bytes_have_no_schema_id(data):
    assert schema_tagged(data, (), "value") is None


def test_a_header_with_a_guid_applies_to_its_part_only():
    headers = (("__value_schema_id", b"\1" + GUID.bytes + b"\x02\x04"),)
    assert schema_tagged(b"abc", headers, "value") == SchemaTagged(str(GUID), b"abc", b"\x02\x04")
    assert schema_tagged(b"abc", headers, "key") is None


def test_a_header_comes_before_the_bytes():
    assert schema_tagged(b"\0\0\0\0\1x", (("__value_schema_id", b"\0\0\0\0\7"),), "value").schema_id == 7


@pytest.mark.parametrize("header", [b"", b"\1short", b"\0\0\0", b"\7" + bytes(16)])
def test_a_header_that_is_no_schema_id_is_no_error(header):
    assert schema_tagged(b"\0\0\0\0\1x", (("__value_schema_id", header),), "value") is None
