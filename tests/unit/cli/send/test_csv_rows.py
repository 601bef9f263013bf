"""CSV: quotes, delimiters, headers, and malformed records."""

from __future__ import annotations

import csv
import io
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core.cli.send.open_rows import InputError, InputRow, MalformedRow, open_rows
from tests.fixtures.input_rows import values, written


def test_csv_on_standard_input_is_typed_by_column(monkeypatch):
    stream = io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"id,zip\n1,10115\n2,01067\n")))
    monkeypatch.setattr(sys, "stdin", stream)

    assert values(None, format="csv") == [{"id": 1, "zip": "10115"}, {"id": 2, "zip": "01067"}]


def test_the_notes_report_how_na_was_read(tmp_path):
    rows = open_rows(written(tmp_path, "a.csv", "delay,tail\n3,N1\nNA,NA\n"))
    list(rows)

    assert "null in delay" in rows.notes[0]
    assert "were kept as text in tail" in rows.notes[1]


def test_quotes_line_breaks_and_delimiters_inside_fields_are_preserved(tmp_path):
    path = written(tmp_path, "a.csv", 'id,text\r\n1,"a ""b"",\nc"\r\n2,d\r\n')
    rows = list(open_rows(path))

    assert [row.value for row in rows] == [{"id": 1, "text": 'a "b",\nc'}, {"id": 2, "text": "d"}]
    assert [row.position for row in rows] == [3, 4]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"1,2,3", "3 fields where the header has 2"),
        (b"1", "1 field where the header has 2"),
        (b'1,"a"b', "not CSV"),
        (b"1,\xff", "not UTF-8"),
    ],
)
def test_a_malformed_record_keeps_its_bytes_and_does_not_affect_others(tmp_path, line, reason):
    rows = list(open_rows(written(tmp_path, "a.csv", b"id,b\n1,x\n" + line + b"\n2,y\n")))

    assert [type(row) for row in rows] == [InputRow, MalformedRow, InputRow]
    assert (rows[1].position, rows[1].raw) == (3, line)
    assert reason in rows[1].text


def test_an_unclosed_quote_does_not_consume_the_rest_of_the_file(tmp_path):
    body = "".join(f"{number},x\n" for number in range(4, 1000))
    rows = list(open_rows(written(tmp_path, "a.csv", f'id,b\n1,x\n2,"open\n3,x\n{body}')))

    assert [row.position for row in rows if isinstance(row, MalformedRow)] == [3]
    assert len(rows) == 999


@pytest.mark.slow
@given(
    st.lists(
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\r")), min_size=2, max_size=2)
    )
)
def test_any_text_that_a_csv_writer_writes_round_trips(tmp_path_factory, records):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b"])
        writer.writerows(records)

    found = values(path, types="text")

    assert found == [{"a": a or None, "b": b or None} for a, b in records]


def test_a_duplicate_column_is_refused(tmp_path):
    with pytest.raises(InputError, match="twice"):
        values(written(tmp_path, "a.csv", "id,id\n1,2\n"))


def test_an_empty_csv_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="no header"):
        values(written(tmp_path, "a.csv", ""))


def test_tsv_is_delimited_by_tabs_and_csv_by_any_chosen_character(tmp_path):
    assert values(written(tmp_path, "a.tsv", "a\tb\n1\t2\n")) == [{"a": 1, "b": 2}]
    assert values(written(tmp_path, "a.csv", "a;b\n1;2\n"), delimiter=";") == [{"a": 1, "b": 2}]


@pytest.mark.parametrize(
    ("name", "header", "option"),
    [
        ("a.csv", "id;name", "--delimiter ';'"),
        ("a.csv", "id\tname", r"--delimiter '\t'"),
        ("a.csv", "id|name", "--delimiter '|'"),
        ("a.tsv", "id,name", "--delimiter ,"),
    ],
)
@pytest.mark.parametrize("types", ["column", "value"])
def test_a_header_with_another_delimiter_is_refused_with_the_option_that_reads_it(
    tmp_path, name, header, option, types
):
    path = written(tmp_path, name, f"{header}\n1{header[2]}a\n")

    with pytest.raises(InputError, match=re.escape(f"Use {option}")):
        values(path, types=types)

    assert values(path, delimiter=option.split()[1].strip("'")) == [{"id": 1, "name": "a"}]
    assert list(values(path, delimiter="#")[0]) == [header]


def test_a_column_without_a_name_is_noted_once(tmp_path):
    rows = open_rows(written(tmp_path, "a.csv", ",a\n0,x\n"))

    assert [row.value for row in rows] == [{"": 0, "a": "x"}]
    assert rows.notes == ['A column has no name in the header; its values are sent as the field "".']


def test_lines_that_end_with_cr_only_are_refused_with_the_fix(tmp_path):
    with pytest.raises(InputError, match=r"carriage return .* tr "):
        values(written(tmp_path, "cr.csv", "id,name\r1,a\r"))


def test_skip_keeps_the_column_types_of_the_whole_file(tmp_path):
    assert values(written(tmp_path, "a.csv", "v\nx\n1\n"), skip=2) == [{"v": "1"}]
