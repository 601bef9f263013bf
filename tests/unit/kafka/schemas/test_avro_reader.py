"""Avro from bytes of unknown origin: values as fastavro writes them, and limits for everything else."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import io

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core.kafka.schemas.avro_reader import read_avro
from producer_core.kafka.schemas.read_limits import MAX_DEPTH, NotReadable

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "paid", "type": "boolean"},
        {"name": "price", "type": "double"},
        {"name": "weight", "type": "float"},
        {"name": "photo", "type": "bytes"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]}},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 3}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "items", "type": {"type": "array", "items": ["null", "int", "string"]}},
        {"name": "before", "type": ["null", "Order"], "default": None},
    ],
}
VALUE = {
    "id": -(2**63), "paid": True, "price": 0.1, "weight": 0.5, "photo": b"\xff\x00", "state": "OLD", "code": b"abc",
    "tags": {"a": "b"}, "items": [None, -3, "x"], "before": None,
}  # fmt: skip
LINKED = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}


def written(value, schema):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def read(data, schema):
    named = {}
    return read_avro(data, fastavro.parse_schema(schema, named_schemas=named, _write_hint=False), named)


def test_a_value_is_read_as_it_was_written():
    value = {**VALUE, "before": VALUE}
    assert read(written(value, ORDER), ORDER) == value


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1)), st.text(), st.floats(allow_nan=False, allow_infinity=False)
)
def test_numbers_and_texts_are_read_as_they_were_written(numbers, text, number):
    schema = {
        "type": "record", "name": "R",
        "fields": [
            {"name": "n", "type": {"type": "array", "items": "long"}}, {"name": "t", "type": "string"},
            {"name": "f", "type": "double"},
        ],
    }  # fmt: skip
    value = {"n": numbers, "t": text, "f": number}
    assert read(written(value, schema), schema) == value


@pytest.mark.parametrize(
    ("schema", "value", "shown"),
    [
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, decimal.Decimal("-12.50"), "-12.50"),
        ({"type": "int", "logicalType": "date"}, datetime.date(2026, 1, 2), "2026-01-02"),
        ({"type": "int", "logicalType": "time-millis"}, datetime.time(3, 4, 5), "03:04:05"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
            "2026-01-02T03:04:05+00:00",
        ),
        ({"type": "long", "logicalType": "timestamp-micros"}, 2**62, 2**62),
        ("double", float("nan"), "nan"),
        ("float", float("-inf"), "-inf"),
    ],
)  # fmt: skip
def test_decimals_times_and_nan_are_text(schema, value, shown):
    assert read(written(value, schema), schema) == shown


@given(st.binary(max_size=200))
def test_other_bytes_are_refused_and_nothing_else_happens(data):
    with contextlib.suppress(NotReadable):
        read(data, ORDER)


@pytest.mark.parametrize(
    ("data", "schema", "reason"),
    [
        (b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", {"type": "array", "items": "null"}, "more than 100,000 parts"),
        (b"\xff" * 30, "long", "longer than 64 bits"),
        (b"\xfe\xff\xff\xff\x7fabc", "string", "ends too early"),
        (b"\x05abc", "bytes", "ends too early"),
        (b"\x02" * 5_000 + b"\0", LINKED, f"deeper than {MAX_DEPTH} levels"),
        (b"\x02\x00", "long", "1 bytes remain"),
        (b"\x07", ["null", "long"], "branch that its schema does not have"),
        (b"\x02\xff", "string", "not UTF-8"),
        (b"\x02", "boolean", "neither 0 nor 1"),
    ],
)  # fmt: skip
def test_hostile_bytes_are_refused_with_the_reason(data, schema, reason):
    with pytest.raises(NotReadable, match=reason):
        read(data, schema)


def test_a_decimal_of_a_megabyte_stays_bytes():
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    data = b"\x01" * 1_000_000
    assert read(written(data, "bytes"), schema) == data
