"""The first part of a value that an Avro schema rejects, and the reason."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from fastavro import parse_schema, schemaless_writer
from fastavro.validation import validate
from hypothesis import given
from hypothesis import strategies as st

from producer_core.kafka.schemas.avro_fit import misfit

ITEM = {
    "type": "record", "name": "Item", "fields": [
        {"name": "price", "type": "double"},
        {"name": "tags", "type": {"type": "map", "values": "string"}, "default": {}},
    ],
}  # fmt: skip
ORDER = parse_schema({
    "type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "items", "type": {"type": "array", "items": ITEM}, "default": []},
        {"name": "gift", "type": ["null", "Item"], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["new", "paid"]}, "default": "new"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
        {"name": "follows", "type": ["null", "Order"], "default": None},
    ],
})  # fmt: skip


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        ({"id": "7"}, ("id",), "a value of type str does not fit long"),
        ({"id": 7.9}, ("id",), "a value of type float does not fit long"),
        ({"id": True}, ("id",), "a value of type bool does not fit long"),
        ({"id": 1 << 70}, ("id",), "an int of 71 bits does not fit long"),
        ({}, ("id",), "missing and has no default"),
        ({"id": 1, "note": 5}, ("note",), "does not fit null or string"),
        ({"id": 1, "items": [{"price": 1.5}, {"price": "x"}]}, ("items", 1, "price"), "does not fit double"),
        ({"id": 1, "items": [{"price": 1, "tags": {"a": 3}}]}, ("items", 0, "tags", "a"), "does not fit string"),
        ({"id": 1, "items": [{"price": 1, "tags": {3: "a"}}]}, ("items", 0, "tags", 3), "must be text"),
        ({"id": 1, "items": 3}, ("items",), "does not fit array"),
        ({"id": 1, "gift": {"price": None}}, ("gift", "price"), "does not fit double"),
        ({"id": 1, "state": "lost"}, ("state",), "does not fit shop.State"),
        ({"id": 1, "at": "yesterday"}, ("at",), "does not fit timestamp-millis"),
        ({"id": 1, "follows": {"id": 2, "follows": {"id": None}}}, ("follows", "follows", "id"), "does not fit long"),
        ([1], (), "a value of type list does not fit shop.Order"),
        ("text", (), "a value of type str does not fit shop.Order"),
    ],
)  # fmt: skip
def test_the_misfit_is_named_with_its_path(value, path, reason):
    found = misfit(value, ORDER)
    assert found.path == path
    assert reason in found.reason


def test_a_field_that_the_schema_does_not_have_is_a_misfit_only_if_strict():
    value = {"id": 1, "curency": "EUR"}
    assert misfit(value, ORDER) is None
    assert misfit(value, ORDER, strict=True).path == ("curency",)


def test_a_reason_does_not_show_the_value():
    assert "4111" not in misfit({"id": "4111 1111"}, ORDER).reason


def test_values_of_logical_types_fit():
    assert misfit({"id": 1, "at": datetime(2026, 1, 2, tzinfo=UTC)}, ORDER) is None
    amount = parse_schema({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2})
    assert misfit(Decimal("1.10"), amount) is None


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**66), 2**66) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["price", "tags", "a"]), inner),
    max_leaves=6,
)  # fmt: skip


@pytest.mark.slow
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("id", "note", "items", "gift", "follows"), ANY)))
def test_a_value_that_cannot_be_written_has_a_misfit(value):
    try:
        schemaless_writer(io.BytesIO(), ORDER, value)
    except (TypeError, ValueError, OverflowError, AttributeError):
        assert misfit(value, ORDER) is not None
    assert (misfit(value, ORDER) is None) == validate(value, ORDER, raise_errors=False)


def test_a_decimal_with_more_digits_than_its_schema_is_a_misfit():
    """Regression: fastavro raised a ValueError, which send_message passed on without the path."""
    money = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    schema = parse_schema({"type": "record", "name": "Paid", "fields": [{"name": "amount", "type": money}]})

    assert misfit({"amount": Decimal("1.23")}, schema) is None
    found = misfit({"amount": Decimal("1.234")}, schema)
    assert found is not None and found.path == ("amount",)
