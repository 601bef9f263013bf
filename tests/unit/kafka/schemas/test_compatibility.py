"""The fields of an Avro schema that cannot be read with another version."""

from __future__ import annotations

import json

import pytest

from producer_core.errors import ConfigError
from producer_core.kafka.schemas import compatibility
from producer_core.kafka.schemas.compatibility import avro_problems


def record(*fields, name="Order"):
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name, kind, **options):
    return {"name": name, "type": kind, **options}


def places(reader, writer):
    return [place for place, _ in avro_problems(reader=json.dumps(reader), writer=json.dumps(writer))]


def test_each_field_that_breaks_a_rule_is_named_once_with_its_reason():
    item = record(field("price", "double"), name="Item")
    dear = record(field("price", "string"), name="Item")
    old = record(field("id", "long"), field("items", {"type": "array", "items": item}))
    new = record(
        field("id", "string"), field("note", "string"), field("items", {"type": "array", "items": dear})
    )

    assert avro_problems(reader=json.dumps(new), writer=json.dumps(old)) == [
        ("id", "Type mismatch: reader type: string not compatible with writer type: long."),
        ("note", "The field is missing and has no default."),
        ("items[].price", "Type mismatch: reader type: string not compatible with writer type: double."),
    ]


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (record(field("a", "long")), record(field("a", "int"))),
        (record(field("a", "int", default=0)), record()),
        (record(), record(field("a", "int"))),
        (record(field("b", "int", aliases=["a"])), record(field("a", "int"))),
        (["null", "string"], "string"),
        ({"type": "map", "values": "double"}, {"type": "map", "values": "float"}),
    ],
)
def test_a_readable_schema_has_no_problem(reader, writer):
    assert places(reader, writer) == []


@pytest.mark.parametrize(
    ("reader", "writer", "place"),
    [
        ("string", "int", ""),
        (record(name="Invoice"), record(), ""),
        (record(field("a", "string")), record(field("a", ["null", "string"])), "a"),
        (record(field("a", ["null", "string"])), record(field("a", ["null", "int"])), "a"),
        (
            record(field("a", {"type": "map", "values": record(field("b", "int"), name="X")})),
            record(field("a", {"type": "map", "values": record(field("b", "string"), name="X")})),
            "a{}.b",
        ),
        (
            record(field("e", {"type": "enum", "name": "E", "symbols": ["X"]})),
            record(field("e", {"type": "enum", "name": "E", "symbols": ["X", "Y"]})),
            "e",
        ),
        (
            record(field("f", {"type": "fixed", "name": "F", "size": 4})),
            record(field("f", {"type": "fixed", "name": "F", "size": 8})),
            "f",
        ),
    ],
)
def test_an_unreadable_place_is_named(reader, writer, place):
    assert places(reader, writer) == [place]


def test_a_recursive_schema_is_compared_once():
    old = record(field("v", "int"), field("next", ["null", "Order"], default=None))
    new = record(field("v", "string"), field("next", ["null", "Order"], default=None))

    assert places(new, old) == ["v"]
    assert places(old, old) == []


def test_a_text_that_is_not_a_schema_is_refused():
    with pytest.raises(ConfigError, match="not an Avro schema"):
        avro_problems(reader="{", writer='"int"')
    with pytest.raises(ConfigError, match="not an Avro schema"):
        avro_problems(reader='{"type": "x"}', writer='"int"')


def test_a_record_that_many_fields_have_is_compared_once(monkeypatch):
    """Each of 12 records has two fields of the next one: 4,096 paths lead to the last."""
    compared = []
    compare = compatibility._unreadable_fields

    def counted(reader, *rest):
        compared.append(reader.name)
        return compare(reader, *rest)

    def records(last):
        inner = {"type": "record", "name": "R12", "fields": [{"name": "z", "type": last}]}
        for number in range(11, -1, -1):
            fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"R{number + 1}"}]
            inner = {"type": "record", "name": f"R{number}", "fields": fields}
        return json.dumps(inner)

    monkeypatch.setattr(compatibility, "_unreadable_fields", counted)
    found = avro_problems(reader=records("int"), writer=records("string"))
    assert [place for place, _ in found] == ["a." * 12 + "z"]
    assert len(compared) == 13
