"""A dead letter as rows of the store and as a line of the spill file."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pytest

from producer_core.dlq import codec
from producer_core.events import Attempt
from tests.fixtures.dead_letters import NOW, WHOLE, dead_letter

EDGE_CASES = {
    "everything": WHOLE,
    "tombstone": dead_letter(value=None),
    "empty value": dead_letter(value=b""),
    "no key": dead_letter(key=None),
    "no attempts": dead_letter(attempts=()),
}


@pytest.mark.parametrize("name", EDGE_CASES)
def test_a_line_is_read_back_as_it_was_written_without_the_application(name):
    line = codec.write_line(EDGE_CASES[name])

    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert codec.read_line(line) == replace(EDGE_CASES[name], application="")


@pytest.mark.parametrize("name", EDGE_CASES)
def test_rows_are_read_back_as_they_were_written(name):
    known = EDGE_CASES[name]
    row = dict(zip(codec.LETTER_COLUMNS, codec.dead_letter_row(known, now=NOW), strict=True))
    body = dict(zip(codec.BODY_COLUMNS, codec.body_row(known), strict=True))

    assert codec.read_dead_letter(row, body) == known
    values = [getattr(known, column) for column in codec.WHOLE_COLUMNS]
    assert codec.whole_dead_letter(values, list(body.values())) == known


def test_a_listing_row_has_sizes_and_no_body():
    row = dict(
        zip(codec.LETTER_COLUMNS, codec.dead_letter_row(WHOLE, now=NOW, operation_id="op"), strict=True)
    )

    assert (row["value_size"], row["attempts"], row["operation_id"], row["state_at"]) == (
        10_240,
        2,
        "op",
        NOW,
    )
    found = codec.read_dead_letter(row)
    assert (found.value, found.headers, found.attempts) == (None, (), ())
    tombstone = dict(
        zip(codec.LETTER_COLUMNS, codec.dead_letter_row(dead_letter(value=None), now=NOW), strict=True)
    )
    assert tombstone["value_size"] is None


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b"null", b"{}", codec.write_line(WHOLE)[:-20], b'{"message_id": "m-1"}']
)
def test_an_invalid_line_raises_a_value_error(line):
    with pytest.raises(ValueError):
        codec.read_line(line)


def test_texts_that_are_not_utf_8_are_replaced():
    odd = dead_letter(error_text="\ud800", source=None, attempts=(Attempt(1.0, "X", "\udfff"),))

    written = codec.encodable(odd)

    assert (written.error_text, written.source, written.attempts[0].text) == ("?", None, "?")
    assert codec.read_line(codec.write_line(odd)) == written


def test_a_dead_letter_with_plain_texts_is_not_copied_to_be_written():
    plain, accented = dead_letter(), dead_letter(error_text="délai dépassé")

    assert codec.encodable(plain) is plain
    assert codec.encodable(accented) == accented


@pytest.mark.parametrize("key", [b"", b"key", bytes(range(256))])
def test_the_mark_of_a_key_is_the_same_in_python_and_in_sql(key):
    with duckdb.connect() as connection:
        (found,) = connection.execute(
            "SELECT (md5_number_lower(?::BLOB) & 4294967295)::UINTEGER", [key]
        ).fetchone()

    assert codec.key_mark(key) == found
    assert codec.key_mark(None) is None


def test_equal_times_are_ordered_by_the_number_at_the_end_of_the_id():
    numbers = [10, 9, 100, 1]

    ordered = sorted([dead_letter(number, accepted_at=NOW) for number in numbers], key=codec.acceptance_order)

    assert [one.message_id for one in ordered] == ["m-1", "m-9", "m-10", "m-100"]
