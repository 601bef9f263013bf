"""The header with a message id: both forms of an id are the same id for every reader."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from producer_core import ConfigError
from producer_core._internal.id_header import ID_HEADER, header_id, id_format, record_id, text_header
from producer_core.kafka.duplicate_filter import Seen
from producer_core.messages import id_bytes, id_text, parse_id

ids = st.binary(min_size=24, max_size=24)


@given(ids)
@example(bytes(24))
@example(b"\xff" * 24)
def test_both_forms_are_the_same_id(raw):
    text = text_header(raw)

    assert header_id(raw) == header_id(text) == raw
    assert text.decode() == id_text(raw), "other tools show what send_message returned"
    assert parse_id(text.decode()) == raw


@given(st.binary(max_size=60))
def test_a_value_is_read_as_an_id_only_if_it_is_one_of_its_two_forms(value):
    found = header_id(value)

    assert found is None or value in (found, text_header(found))


ONE = uuid.UUID("018f0000-0000-7000-8000-00000000000a")
GOOD = text_header(id_bytes(ONE, 7))


@pytest.mark.parametrize(
    "value",
    [
        GOOD.upper(),
        GOOD + b"\n",
        b" " + GOOD,
        GOOD[:37] + b"07",
        GOOD[:37] + str(1 << 64).encode(),
        GOOD[:37] + b"1" * 21,
        GOOD[:37],
        GOOD[:37] + b"-1",
        GOOD[:37] + "٣".encode(),
        GOOD.replace(b"-", b""),
    ],
)
def test_a_text_that_is_not_canonical_is_no_id(value):
    assert header_id(value) is None


@given(st.lists(st.tuples(ids, st.booleans(), st.booleans()), max_size=30))
def test_a_filter_of_duplicates_recognizes_a_copy_in_the_other_form(records):
    """Each drawn id is read once or twice, the copy in the form that the first did not have."""
    seen = Seen()
    offset = 0
    used = set()
    for raw, as_text, _twice in records:
        if raw in used:
            continue
        used.add(raw)
        assert seen.first(message(text_header(raw) if as_text else raw, offset))
        assert not seen.first(message(raw if as_text else text_header(raw), offset + 1))
        offset += 2
    assert seen.dropped == len(used) and seen.without_id == 0


def message(value, offset):
    return FakeMessage([(ID_HEADER, value)], offset)


class FakeMessage:
    """A record as a consumer returns it."""

    def __init__(self, headers, offset):
        self._headers, self._offset = headers, offset

    def headers(self):
        return self._headers

    def topic(self):
        return "orders"

    def partition(self):
        return 0

    def offset(self):
        return self._offset


def test_the_first_header_with_an_id_counts_in_either_form():
    good, other = id_bytes(ONE, 7), id_bytes(ONE, 8)
    assert (
        record_id([(ID_HEADER, b"x"), (ID_HEADER, None), (ID_HEADER, text_header(good)), (ID_HEADER, other)])
        == good
    )
    assert record_id([("trace", text_header(good))]) is None
    assert record_id(None) is None


@pytest.mark.parametrize("value", ["hex", "TEXT", None, 1])
def test_an_unknown_format_is_refused(value):
    with pytest.raises(ConfigError, match="binary or text"):
        id_format(value)
