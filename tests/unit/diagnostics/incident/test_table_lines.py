"""What an export writes, a reader accepts, whatever the live store has."""

from __future__ import annotations

import math

import pytest

from producer_core.diagnostics.incident import table_lines
from producer_core.diagnostics.incident.table_columns import MAX_TIME, columns

LETTER = {"VARCHAR": "", "DOUBLE": 0.0, "BOOLEAN": False, "BLOB": b""}


def row_of(table, **values):
    return [values.get(one.name, LETTER.get(one.type, 0)) for one in columns()[table]]


def read_back(table, row):
    """Return the row as a reader reads it, by column. The chunks divide lines and characters."""
    data = table_lines.header_line(table) + table_lines.row_line(table, row)
    chunks = (data[at : at + 7] for at in range(0, len(data), 7))
    ((names, (found,)),) = table_lines.read_rows(chunks, table, "a.zip")
    return dict(zip(names, found, strict=True))


def body(**values):
    return row_of("dead_letter_bodies", headers="[]", attempts="[]", **values)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1_700_000_000.25, 1_700_000_000.25),
        (math.inf, MAX_TIME),
        (-math.inf, -MAX_TIME),
        (1e300, MAX_TIME),
    ],
)
def test_times_that_no_page_can_show_become_the_last_ones(value, expected):
    assert read_back("audit", row_of("audit", acted_at=value))["acted_at"] == expected


def test_a_number_that_is_not_one_becomes_a_bound():
    found = read_back("statistics", row_of("statistics", latency_sum=math.nan))["latency_sum"]
    assert math.isfinite(found)


def test_bytes_and_texts_are_unchanged():
    key, text = bytes(range(256)), 'ümläut\n\x00\u2028"\\ 😀'
    found = read_back("dead_letters", row_of("dead_letters", key=key, error_text=text))
    assert (found["key"], found["error_text"]) == (key, text)


@pytest.mark.parametrize(("text", "expected"), [("a" * 2000, f"{'a' * 1000}…"), (f"[{'1,' * 999}1]", "[]")])
def test_a_text_that_is_too_long_is_shortened(monkeypatch, text, expected):
    monkeypatch.setattr(table_lines, "MAX_TEXT", 1500)
    assert read_back("audit", row_of("audit", selection=text))["selection"] == expected


@pytest.mark.parametrize("headers", ["no JSON", '[["a"]]', "{}7"])
def test_headers_that_no_page_can_show_become_empty(headers):
    row = row_of("dead_letter_bodies", headers=headers, attempts="[]")
    assert read_back("dead_letter_bodies", row)["headers"] == "[]"


def test_a_line_that_is_too_long_loses_its_longest_values(monkeypatch):
    monkeypatch.setattr(table_lines, "MAX_LINE", 4000)
    monkeypatch.setattr(table_lines, "_SHORTER", (100, 1000))
    found = read_back("dead_letter_bodies", body(message_id="m", value=b"x" * 3500))
    assert (found["message_id"], found["value"]) == ("m", b"3,500 bytes, left out")
    assert read_back("dead_letter_bodies", body(message_id="m", value=b"x" * 1500))["value"] == b"x" * 1500
