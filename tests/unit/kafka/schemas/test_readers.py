"""Readers of hostile schemas and values: what would crash, grow without limit, or pass unmasked."""

from __future__ import annotations

import base64
import tracemalloc

import orjson
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from producer_core._internal.masking import display_decoded, display_value
from producer_core._internal.schema_id import SchemaTagged
from producer_core.kafka.schemas.read_limits import NotReadable, UnusableSchema
from producer_core.kafka.schemas.readers import SchemaText, make_reader

SECRET = b'{"password":"hunter2","card":"4111111111111111"}'


def zigzag(number):
    number, out = number << 1, b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number, data):
    """A field of a Protobuf message whose content is bytes."""
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def read_avro(schema, data):
    return make_reader(SchemaText("AVRO", orjson.dumps(schema).decode(), {})).read(SchemaTagged(1, data))


def read_protobuf(file, data):
    text = base64.b64encode(file.SerializeToString()).decode()
    return make_reader(SchemaText("PROTOBUF", text, {})).read(SchemaTagged(1, b"\0" + data))


def a_file(*fields, syntax="proto3", **options):
    """A file with one message type M. A field is a dict of its descriptor."""
    file = FileDescriptorProto(
        name="a.proto",
        package="shop",
        syntax=syntax,
        dependency=[f"google/protobuf/{name}.proto" for name in ("any", "struct", "timestamp", "wrappers")],
    )
    kind = file.message_type.add(name="M", **options)
    for one in fields:
        kind.field.add(**{"label": Field.LABEL_OPTIONAL, **one})
    return file


# Avro


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ({"type": "fixed", "name": "F", "size": None}, b"abc"),
        ({"type": "fixed", "name": "F", "size": "abc"}, b"abc"),
        ({"type": "fixed", "name": "F", "size": 1.5}, b"abc"),
        ({"type": "fixed", "name": "F", "size": True}, b"abc"),
        ({"type": "enum", "name": "E", "symbols": {"a": 1}}, b"\0"),
        ({"type": "enum", "name": "E", "symbols": [1, {"a": 2}]}, b"\0"),
        ({"type": "record", "name": "R", "fields": [{"name": ["x"], "type": "null"}]}, b""),
        ({"type": "record", "name": "R", "fields": [{"name": 5, "type": "null"}]}, b""),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": []}}, b"\2abc\0"),
    ],
)
def test_an_avro_schema_with_a_part_of_the_wrong_type_is_not_usable(schema, data):
    with pytest.raises(UnusableSchema):
        read_avro(schema, data)


def test_a_number_above_64_bits_is_refused():
    with pytest.raises(NotReadable, match="64 bits"):
        read_avro("long", b"\xff" * 9 + b"\x7f")
    assert read_avro("long", b"\xff" * 9 + b"\x01") == -(2**63)


@pytest.mark.parametrize("base", ["string", "bytes"])
@pytest.mark.parametrize("logical", ["timestamp-millis", "date", "time-millis", "local-timestamp-nanos"])
def test_a_time_of_text_stays_text_and_needs_no_memory(base, logical):
    tracemalloc.start()
    found = read_avro({"type": base, "logicalType": logical}, zigzag(50) + b"a" * 50)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found in ("a" * 50, b"a" * 50)
    assert peak < 4_000_000


def test_a_long_name_in_many_records_is_refused():
    def array(name):
        record = {"type": "record", "name": "R", "fields": [{"name": name, "type": "null"}]}
        return {"type": "array", "items": record}

    with pytest.raises(NotReadable, match="more than 256 characters"):
        read_avro(array("n" * 20_000), zigzag(1) + b"\0")
    with pytest.raises(NotReadable, match="more than 2 MiB"):
        read_avro(array("n" * 250), zigzag(9_000) + b"\0")
    assert len(read_avro(array("n" * 250), zigzag(3_000) + b"\0")) == 3_000


def test_a_long_symbol_in_many_items_is_refused():
    schema = {"type": "array", "items": {"type": "enum", "name": "E", "symbols": ["s" * 250]}}
    with pytest.raises(NotReadable, match="more than 2 MiB"):
        read_avro(schema, zigzag(9_000) + b"\0" * 9_001)


def test_a_large_scale_in_many_decimals_is_refused():
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 1_001, "scale": 1_000}
    with pytest.raises(NotReadable, match="more than 2 MiB"):
        read_avro({"type": "array", "items": decimal}, zigzag(9_000) + b"\2\1" * 9_000 + b"\0")


# Protobuf


def test_bytes_of_a_protobuf_message_are_masked_like_the_bytes_of_a_plain_value():
    file = a_file({"name": "payload", "number": 1, "type": Field.TYPE_BYTES})
    shown = display_decoded(read_protobuf(file, field(1, SECRET)))
    assert "hunter2" not in str(shown) and "4111111111111111" not in str(shown)
    assert orjson.loads(shown["payload"]) == display_value(SECRET)
    hidden = bytes(range(128, 160))
    assert display_decoded(read_protobuf(file, field(1, hidden))) == {"payload": "32 bytes that are not text"}
    assert display_decoded(read_protobuf(file, field(1, hidden)), reveal=True) == {
        "payload": f"0x{hidden.hex()}"
    }


@pytest.mark.parametrize("place", ["repeated", "map", "wrapper", "any"])
def test_bytes_inside_other_parts_of_a_message_are_masked(place):
    wrapped, unknown = field(1, SECRET), field(1, b"x/Foo") + field(2, SECRET)
    file = a_file(
        {"name": "repeated", "number": 1, "type": Field.TYPE_BYTES, "label": Field.LABEL_REPEATED},
        {"name": "map", "number": 2, "type": Field.TYPE_MESSAGE, "label": Field.LABEL_REPEATED, "type_name": ".shop.M.MapEntry"},
        {"name": "wrapper", "number": 3, "type": Field.TYPE_MESSAGE, "type_name": ".google.protobuf.BytesValue"},
        {"name": "any", "number": 4, "type": Field.TYPE_MESSAGE, "type_name": ".google.protobuf.Any"},
    )  # fmt: skip
    entry = file.message_type[0].nested_type.add(name="MapEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=Field.TYPE_BYTES, label=Field.LABEL_OPTIONAL)
    data = {
        "repeated": field(1, SECRET),
        "map": field(2, field(1, b"k") + field(2, SECRET)),
        "wrapper": field(3, wrapped),
        "any": field(4, unknown),
    }[place]
    found = read_protobuf(file, data)
    assert SECRET in _leaves(found)
    assert "hunter2" not in str(display_decoded(found))


def _leaves(value):
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    return [leaf for item in value for leaf in _leaves(item)] if isinstance(value, list) else [value]


def test_an_extension_of_proto2_is_masked_by_its_name():
    file = a_file(syntax="proto2")
    file.message_type[0].extension_range.add(start=100, end=200)
    file.extension.add(
        name="pin", number=100, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL, extendee=".shop.M"
    )
    found = read_protobuf(file, b"\xa2\x06\x041234")
    assert found == {"[shop.pin]": "1234"}
    assert display_decoded(found) == {"[shop.pin]": "***"}


@pytest.mark.parametrize(
    ("number", "data", "shown"),
    [
        (1, b"\x08" + b"\xff" * 8 + b"\x7f", {"at": {"seconds": "9223372036854775807"}}),
        (1, b"\x08\x01", {"at": "1970-01-01T00:00:01Z"}),
        (2, b"\x11\x00\x00\x00\x00\x00\x00\xf8\x7f", {"any_value": "nan"}),
        (2, b"\x11\x00\x00\x00\x00\x00\x00\xf0\x7f", {"any_value": "inf"}),
        (2, b"\x08\x00", {"any_value": None}),
        (2, field(6, b"\x0a\x02\x20\x01"), {"any_value": [True]}),
        (2, field(5, field(1, field(1, b"a") + field(2, b"\x20\x01"))), {"any_value": {"a": True}}),
    ],
)
def test_times_and_numbers_that_json_does_not_have_are_shown(number, data, shown):
    file = a_file(
        {"name": "at", "number": 1, "type": Field.TYPE_MESSAGE, "type_name": ".google.protobuf.Timestamp"},
        {"name": "any_value", "number": 2, "type": Field.TYPE_MESSAGE, "type_name": ".google.protobuf.Value"},
    )
    found = display_decoded(read_protobuf(file, field(number, data)))
    assert found == shown
    assert orjson.dumps(found)


def test_numbers_enums_and_presence_are_as_in_the_json_of_protobuf():
    file = a_file(
        {"name": "ratio", "number": 1, "type": Field.TYPE_FLOAT},
        {"name": "count", "number": 2, "type": Field.TYPE_INT64},
        {"name": "state", "number": 3, "type": Field.TYPE_ENUM, "type_name": ".shop.State"},
        {"name": "note", "number": 4, "type": Field.TYPE_STRING},
    )
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="OLD", number=1)
    assert read_protobuf(file, b"\x0d\xcd\xcc\xcc\x3d\x10\x07\x18\x01") == {
        "ratio": 0.1,
        "count": "7",
        "state": "OLD",
    }
    assert read_protobuf(file, b"\x18\x05") == {"state": 5}


def test_many_parts_or_long_names_of_a_protobuf_message_are_refused():
    flag = {"number": 1, "type": Field.TYPE_BOOL, "label": Field.LABEL_REPEATED}
    with pytest.raises(NotReadable, match="more than 100,000 parts"):
        read_protobuf(a_file({"name": "flags", **flag}), b"\x08\x01" * 100_001)
    again = {"number": 2, "type": Field.TYPE_MESSAGE, "label": Field.LABEL_REPEATED, "type_name": ".shop.M"}
    file = a_file({"name": "again", **again}, {"name": "n" * 250, **flag})
    with pytest.raises(NotReadable, match="more than 2 MiB"):
        read_protobuf(file, field(2, b"\x08\x01") * 9_000)
    with pytest.raises(NotReadable, match="more than 256 characters"):
        read_protobuf(a_file({"name": "n" * 20_000, **flag}), b"\x08\x01")
