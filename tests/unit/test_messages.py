"""Round trips of ids, values, keys and headers; equal checksums mean equal content."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import json
import os
import subprocess
import sys
import uuid
from typing import NamedTuple

import numpy
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core.errors import InvalidMessage
from producer_core.messages import (
    ID_HEADER,
    Message,
    MessageStatus,
    checksum,
    encode_headers,
    encode_key,
    encode_value,
    id_bytes,
    id_text,
    new_session,
    parse_id,
    record_id,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
SEQUENCES = st.integers(0, 2**64 - 1)


# ids


@pytest.mark.slow
@given(st.uuids(), SEQUENCES)
def test_an_id_round_trips_through_text_and_header(session, number):
    raw = id_bytes(session, number)
    assert len(raw) == 24
    assert id_text(raw) == f"{session}-{number}"
    assert parse_id(id_text(raw)) == raw
    assert record_id([("other", b"x"), (ID_HEADER, raw)]) == raw


@given(st.uuids(), SEQUENCES, SEQUENCES)
def test_ids_of_one_session_sort_in_sending_order(session, one, other):
    assert (id_bytes(session, one) < id_bytes(session, other)) == (one < other)


def test_sessions_are_uuid_version_7_and_unique():
    sessions = [new_session() for _ in range(1000)]
    assert len(set(sessions)) == 1000
    assert {(session.version, session.variant) for session in sessions} == {(7, uuid.RFC_4122)}


@pytest.mark.parametrize("headers", [None, [], [("x", b"1")], [(ID_HEADER, None)], [(ID_HEADER, b"short")]])
def test_a_record_of_another_program_has_no_id(headers):
    assert record_id(headers) is None


@pytest.mark.parametrize("text", ["", "-", "7", "not-an-id", f"{uuid.UUID(int=1)}-x", f"{uuid.UUID(int=1)}"])
def test_a_text_that_is_not_an_id_raises_a_value_error(text):
    with pytest.raises(ValueError):
        parse_id(text)


# values


@given(JSON)
def test_a_value_round_trips(value):
    data = encode_value(value)
    if value is None:
        assert data is None  # a tombstone
    else:
        assert json.loads(data) == value


@given(st.binary())
def test_bytes_pass_through_unchanged(data):
    assert encode_value(data) == encode_key(data) == data
    assert encode_value(bytearray(data)) == encode_value(memoryview(data)) == data


@dataclasses.dataclass
class Reading:
    celsius: float


class Number(float):
    """A subclass of float, as a user may define one."""


class Pair(NamedTuple):
    one: float
    other: float


def Weird(value):
    return enum.Enum("Weird", {"ONLY": value}).ONLY


@pytest.mark.slow
@given(st.dictionaries(TEXT, JSON, max_size=4), st.sampled_from([float("nan"), float("inf"), -float("inf")]))
def test_nan_is_rejected_and_never_becomes_null(value, bad):
    for hidden in (
        {**value, "x": bad},
        {"a": [value, [bad]]},
        {"t": (1, bad)},
        {"s": {bad}},
        {"n": numpy.array([1, bad])},
        {"n": numpy.array([None, bad], dtype=object)},
        {"d": Reading(bad)},
        {"e": Weird(bad)},
        {"p": Pair(1, bad)},
        {"k": {bad: 1}},
        {"l": Number(bad)},
    ):
        with pytest.raises(InvalidMessage, match="NaN"):
            encode_value(hidden)


def test_null_and_the_text_null_are_accepted():
    assert encode_value({"a": None, "b": "null NaN", "c": [None]}) == b'{"a":null,"b":"null NaN","c":[null]}'


def test_json_is_compact_utf8():
    assert encode_value({"ä": [1, 2]}) == '{"ä":[1,2]}'.encode()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (numpy.int64(3), "3"),
        (numpy.float32(0.5), "0.5"),
        (numpy.bool_(True), "true"),
        (numpy.array([[1, 2], [3, 4]]), "[[1,2],[3,4]]"),
        (numpy.str_("x"), '"x"'),
        (decimal.Decimal("1.10"), '"1.10"'),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (datetime.datetime(2026, 1, 2, 3, 4, 5), '"2026-01-02T03:04:05"'),
        (datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), '"2026-01-02T00:00:00+00:00"'),
        (datetime.date(2026, 1, 2), '"2026-01-02"'),
        (MessageStatus.SENT, '"sent"'),
        ({1: "a"}, '{"1":"a"}'),
        ((1, 2), "[1,2]"),
        (frozenset([7]), "[7]"),
        (numpy.arange(6).reshape(2, 3).T, "[[0,3],[1,4],[2,5]]"),
        (numpy.arange(6)[::2], "[0,2,4]"),
        (numpy.array(["a", "b"]), '["a","b"]'),
        (
            numpy.array(["2026-01-02"] * 4, dtype="datetime64[ns]")[::2],
            '["2026-01-02T00:00:00","2026-01-02T00:00:00"]',
        ),
        (Pair(1, 2), "[1,2]"),
        (Reading(1.5), '{"celsius":1.5}'),
        (Number(1.5), "1.5"),
        (pandas.Timestamp("2026-01-02T03:04:05Z"), '"2026-01-02T03:04:05+00:00"'),
        (pandas.Series([1, 2]), "[1,2]"),
        (datetime.time(3, 4, 5), '"03:04:05"'),
        (datetime.timedelta(seconds=1), '"0:00:01"'),
    ],
)
def test_values_without_a_json_type_are_written_as_documented(value, text):
    assert encode_value(value).decode() == text


def test_a_serializer_that_returns_none_for_a_value_raises_instead_of_writing_a_tombstone():
    with pytest.raises(InvalidMessage, match="returned None") as raised:
        encode_value({"a": 1}, lambda value: None)
    assert "value=None" in raised.value.fix
    assert encode_value(None, lambda value: None) is None  # a tombstone on purpose


def test_a_user_serializer_is_used_and_its_errors_are_reported():
    assert encode_value({"n": 1}, lambda value: b"mine") == b"mine"
    with pytest.raises(InvalidMessage, match="serializer failed: division by zero"):
        encode_value({"n": 1}, lambda value: 1 / 0)
    with pytest.raises(InvalidMessage, match="must return bytes, not str"):
        encode_value({"n": 1}, lambda value: "text")


# keys and headers


@pytest.mark.parametrize(
    ("key", "data"),
    [
        (None, None),
        ("", b""),
        ("ä", "ä".encode()),
        (7, b"7"),
        (-1, b"-1"),
        (b"\xff", b"\xff"),
        (uuid.UUID(int=1), b"00000000-0000-0000-0000-000000000001"),
        (numpy.int64(7), b"7"),
        (numpy.str_("x"), b"x"),
    ],
)
def test_keys_are_encoded_as_other_clients_encode_them(key, data):
    assert encode_key(key) == data


@given(
    st.lists(
        st.tuples(
            TEXT.filter(lambda name: name != ID_HEADER and "\0" not in name), st.none() | st.binary() | TEXT
        ),
        max_size=8,
    )
)
def test_headers_keep_order_duplicates_and_null(headers):
    encoded = encode_headers(headers)
    assert [name for name, _ in encoded] == [name for name, _ in headers]
    assert [value for _, value in encoded] == [
        value.encode() if isinstance(value, str) else value for _, value in headers
    ]


@pytest.mark.parametrize("headers", [["ab"], [b"ab"], "ab", ("ab", "cd")])
def test_a_text_of_two_characters_is_not_a_header(headers):
    with pytest.raises(InvalidMessage, match="pairs of a name and a value"):
        encode_headers(headers)


def test_headers_can_be_a_dict():
    assert encode_headers({"a": "x", "b": None}) == [("a", b"x"), ("b", None)]


# checksums


@pytest.mark.slow
@given(st.dictionaries(TEXT, JSON, max_size=5), st.randoms())
def test_a_checksum_does_not_depend_on_the_order_of_fields(value, random):
    shuffled = list(value.items())
    random.shuffle(shuffled)
    assert checksum("t", b"k", value) == checksum("t", b"k", dict(shuffled))


@given(st.tuples(TEXT, st.none() | st.binary(), JSON), st.tuples(TEXT, st.none() | st.binary(), JSON))
def test_two_messages_have_equal_checksums_only_if_they_are_equal(one, other):
    def plain(message):
        topic, key, value = message
        if isinstance(value, dict):
            value = {
                k: v for k, v in value.items() if k not in ("timestamp", "message_id", "processing_time")
            }
        return topic, key, json.dumps(value, sort_keys=True)

    assert (checksum(*one) == checksum(*other)) == (plain(one) == plain(other))


class Record(collections.abc.Mapping):
    """A mapping that is not a dict, and whose text does not show its content."""

    def __init__(self, **fields):
        self._fields = fields

    def __getitem__(self, name):
        return self._fields[name]

    def __iter__(self):
        return iter(self._fields)

    def __len__(self):
        return len(self._fields)

    def __str__(self):
        return "a record"


@pytest.mark.parametrize(
    "inside", [lambda value: value, lambda value: {"order": value}], ids=["whole", "field"]
)
def test_other_mappings_are_compared_and_written_by_their_content(inside):
    one, other = inside(Record(n=1)), inside(Record(n=2))
    assert checksum("t", None, one) != checksum("t", None, other)
    assert checksum("t", None, one) == checksum("t", None, inside({"n": 1}))
    assert json.loads(encode_value(one)) == inside({"n": 1})


@pytest.mark.slow
def test_deduplication_of_a_value_that_only_a_serializer_can_write_names_the_key_to_pass():
    with pytest.raises(InvalidMessage, match="Pass dedup_key=") as raised:
        checksum("t", None, object())
    assert "value_serializer" not in str(raised.value), "the message has one already"


def test_two_processes_agree_on_the_checksum_of_a_set():
    """Sets of text iterate in a different order in each process; equal messages once got different checksums."""
    script = (
        "from producer_core.messages import checksum; print(checksum('t', None, {'tags': set('abcdefgh')}))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert found == {checksum("t", None, {"tags": set("hgfedcba")}) + "\n"}


@pytest.mark.parametrize("value", [{"raw": b"x"}, {"x": float("nan")}, {"x": decimal.Decimal("Infinity")}])
def test_a_value_that_cannot_be_compared_raises_an_error_with_a_fix(value):
    # formerly a TypeError of orjson, or NaN compared equal to null
    with pytest.raises(InvalidMessage, match="dedup_key"):
        checksum("t", None, value)


def test_a_nested_time_field_is_part_of_the_content():
    assert checksum("t", None, {"a": {"timestamp": 1}}) != checksum("t", None, {"a": {"timestamp": 2}})
    assert checksum("t", None, {"timestamp": 1}) == checksum("t", None, {"timestamp": 2})


# Message


def test_a_message_takes_positional_fields_and_is_immutable():
    now = datetime.datetime(2026, 1, 1)
    message = Message("id", "orders", "key", {"n": 1}, now)
    assert (message.status, message.retry_count, message.last_error, message.checksum) == (
        MessageStatus.PENDING,
        0,
        None,
        None,
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.topic = "other"


def test_the_status_values_are_as_documented():
    assert {status.name: status.value for status in MessageStatus} == {
        "PENDING": "pending",
        "SENT": "sent",
        "FAILED": "failed",
        "RETRYING": "retrying",
        "DLQ": "dlq",
        "DUPLICATE": "duplicate",
    }
