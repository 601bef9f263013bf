"""Avro values that a schema accepts are written as it says; all others are rejected with their path."""

from __future__ import annotations

import json
import uuid
from io import BytesIO

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext
from fastavro import parse_schema, schemaless_reader

from producer_core import InvalidMessage
from producer_core.kafka.schemas.formats import make_writer

FIXED = {"type": "fixed", "name": "F", "size": 2}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
INNER = {"type": "record", "name": "Inner", "fields": [{"name": "b", "type": "bytes", "default": "\u00ff"}]}


def written(fields, value):
    """Return the value that a reader gets for this one."""
    schema = {"type": "record", "name": "Order", "fields": fields}
    with SchemaRegistryClient({"url": "mock://formats"}) as client:
        write = make_writer("avro")(client, Schema(json.dumps(schema), "AVRO"), 7)
        data = write(value, SerializationContext("orders", MessageField.VALUE, []))
    assert data[:5] == b"\0\0\0\0\7"
    return schemaless_reader(BytesIO(data[5:]), parse_schema(schema), None)


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        ("bytes", "", b""),
        ("bytes", "\u00ffA", b"\xffA"),
        (FIXED, "\u0000\u0001", b"\0\1"),
        (DECIMAL, "\u0001", pytest.approx(0.01)),
        (["bytes", "null"], "A", b"A"),
        ({"type": "array", "items": "bytes"}, ["A", "B"], [b"A", b"B"]),
        ({"type": "map", "values": FIXED}, {"a": "AB"}, {"a": b"AB"}),
        (INNER, {}, {"b": b"\xff"}),
        (INNER, {"b": "A"}, {"b": b"A"}),
        (["null", "string"], None, None),
        ("string", "A", "A"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "A", "A"),
    ],
)
def test_an_omitted_field_is_written_with_its_default(kind, default, expected):
    found = written([{"name": "p", "type": kind, "default": default}], {})["p"]
    assert (float(found) if kind is DECIMAL else found) == expected


def test_the_default_of_a_named_type_that_is_used_twice_is_written_in_both_places():
    fields = [
        {"name": "p", "type": INNER, "default": {}},
        {"name": "q", "type": "Inner", "default": {"b": "A"}},
    ]
    assert written(fields, {}) == {"p": {"b": b"\xff"}, "q": {"b": b"A"}}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("float", 1e300),
        ("float", -(10**400)),
        (["null", "float"], 1e39),
        ("double", 10**400),
        ({"type": "string", "logicalType": "uuid"}, "nope"),
        (["null", {"type": "string", "logicalType": "uuid"}], "nope"),
    ],
)
def test_a_value_that_a_reader_would_not_get_back_is_rejected(kind, value):
    with pytest.raises(InvalidMessage, match=r"^At value\['p'\]: .* does not fit"):
        written([{"name": "p", "type": kind}], {"p": value})


@pytest.mark.parametrize(
    ("kind", "value"),
    [("float", 1.5), ("float", 3), ("float", float("inf")), ("double", 1e300), ("double", 2**70)],
)
def test_a_number_in_range_is_written(kind, value):
    assert written([{"name": "p", "type": kind}], {"p": value})["p"] == value


def test_a_pair_names_the_branch_of_a_union():
    price = {"type": "record", "name": "Price", "fields": [{"name": "x", "type": "float"}]}
    weight = {"type": "record", "name": "Weight", "fields": [{"name": "x", "type": "float"}]}
    fields = [{"name": "p", "type": ["null", price, weight]}, {"name": "q", "type": ["null", "Weight"]}]
    value = {"p": ("Weight", {"x": 1.5}), "q": ("Weight", {"x": 2.5})}
    assert written(fields, value) == {"p": {"x": 1.5}, "q": {"x": 2.5}}
    with pytest.raises(InvalidMessage, match=r"^At value\['p'\]\['x'\]: .* does not fit float"):
        written(fields, {"p": ("Weight", {"x": 1e300}), "q": None})


def test_a_uuid_is_written_from_either_form():
    fields, one = [{"name": "p", "type": {"type": "string", "logicalType": "uuid"}}], uuid.uuid4()
    assert written(fields, {"p": one})["p"] == written(fields, {"p": str(one)})["p"] == one
