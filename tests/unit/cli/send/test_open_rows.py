"""The row readers of `send`: types are preserved, nothing is lost, and malformed rows keep their bytes."""

from __future__ import annotations

import csv
import gzip
import io
import re
import sys
import zipfile
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core.cli.send import column_types
from producer_core.cli.send.key_field import key_of
from producer_core.cli.send.open_rows import InputError, InputRow, MalformedRow, open_rows
from producer_core.errors import ConfigError, InvalidMessage
from producer_core.messages import encode_value


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def values(path, **options):
    return [row.value for row in open_rows(path, **options)]


def column(tmp_path, *texts, **options):
    lines = ["name,value", *(f"x,{text}" for text in texts)]
    return [value["value"] for value in values(written(tmp_path, "c.csv", "\n".join(lines)), **options)]


# JSON lines


def test_a_json_line_is_sent_byte_for_byte(tmp_path):
    path = written(tmp_path, "a.jsonl", '{"price": 1.10, "id": 12345678901234567890123}\n  [1]  \n')

    assert values(path) == [b'{"price": 1.10, "id": 12345678901234567890123}', b"[1]"]


def test_scalar_json_values_are_rows_and_null_is_the_value_null(tmp_path):
    assert values(written(tmp_path, "a.jsonl", 'null\n7\n"text"\ntrue')) == [
        b"null",
        b"7",
        b'"text"',
        b"true",
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"not json", "not JSON"),
        (b'{"a": NaN}', "not JSON"),
        (b'{"a": 1', "not JSON"),
        (b'"\xff"', "not UTF-8"),
    ],
)
def test_a_malformed_line_keeps_its_bytes_its_number_and_the_reason(tmp_path, line, reason):
    rows = list(open_rows(written(tmp_path, "a.jsonl", b"{}\n\n" + line + b"\r\n{}\n")))

    assert [type(row) for row in rows] == [InputRow, MalformedRow, InputRow]
    assert (rows[1].position, rows[1].raw) == (3, line)
    assert reason in rows[1].text


def test_blank_lines_are_counted_and_skipped(tmp_path):
    rows = open_rows(written(tmp_path, "a.jsonl", "1\n\n   \n2\n"))

    assert [row.position for row in rows] == [1, 4]
    assert rows.blank == 2


def test_skip_omits_the_first_lines_and_keeps_the_line_numbers(tmp_path):
    assert [row.position for row in open_rows(written(tmp_path, "a.jsonl", "1\n2\n3\n"), skip=2)] == [3]


def test_a_byte_order_mark_is_not_part_of_the_first_line(tmp_path):
    assert values(written(tmp_path, "a.jsonl", b"\xef\xbb\xbf{}\n")) == [b"{}"]


def test_utf_16_is_refused_and_not_read_as_malformed_lines(tmp_path):
    with pytest.raises(InputError, match=r"UTF-16.*iconv"):
        values(written(tmp_path, "a.jsonl", '{"a": 1}\n'.encode("utf-16")))


def test_a_json_array_is_refused_and_not_read_as_malformed_lines(tmp_path):
    with pytest.raises(InputError, match=r"JSON array.*jq -c '\.\[\]'"):
        values(written(tmp_path, "a.json", '[\n{"a": 1}\n]\n'))


@pytest.mark.parametrize("text", ['[{"a":1},{"a":2}]', '\n[{"a":1}]\n\n', "[]\n", '[{"a":1},\n{"a":2}]'])
def test_a_json_array_is_refused_on_one_line_and_on_several(tmp_path, text):
    with pytest.raises(InputError, match=r"JSON array.*jq -c '\.\[\]'"):
        values(written(tmp_path, "a.json", text))


def test_the_fix_for_a_compressed_json_array_decompresses_it(tmp_path):
    with pytest.raises(InputError, match=r"zcat \S+/a.json.gz \| jq"):
        values(written(tmp_path, "a.json.gz", gzip.compress(b'[{"a":1}]')))


def test_an_array_line_is_sent_where_more_lines_follow_or_the_format_is_explicit(tmp_path):
    lines = written(tmp_path, "a.jsonl", "[1]\n[2]\n")
    one = written(tmp_path, "b.jsonl", "[1]\n")

    assert values(lines) == [b"[1]", b"[2]"]
    assert values(one, format="jsonl") == [b"[1]"]
    assert values(lines, skip=1) == [b"[2]"]


def test_a_csv_file_with_a_jsonl_name_stops_at_the_first_line(tmp_path):
    with pytest.raises(InputError, match="--format"):
        values(written(tmp_path, "a.jsonl", "id,name\n1,x\n"))


def test_a_line_above_the_length_limit_does_not_affect_other_lines(tmp_path, monkeypatch):
    monkeypatch.setattr("producer_core.cli.send.input_file.LONGEST_LINE", 100)

    rows = list(open_rows(written(tmp_path, "a.jsonl", b"1\n" + b'"' + b"x" * 1000 + b'"\n2\n')))

    assert [type(row) for row in rows] == [InputRow, MalformedRow, InputRow]
    assert rows[2].position == 3


# files


def test_gzip_and_a_zip_of_one_file_are_decompressed(tmp_path):
    compressed = written(tmp_path, "a.jsonl.gz", gzip.compress(b"1\n2\n"))
    archive = tmp_path / "b.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("inside.csv", "id\n7\n")

    assert values(compressed) == [b"1", b"2"]
    assert values(archive) == [{"id": 7}]


def test_a_truncated_gzip_yields_its_readable_rows_and_then_an_error(tmp_path):
    compressed = gzip.compress(b"".join(b"%d\n" % number for number in range(20000)))
    rows = iter(open_rows(written(tmp_path, "a.jsonl.gz", compressed[: len(compressed) // 2])))
    read = [next(rows)]

    with pytest.raises(InputError, match="damaged"):
        read.extend(rows)
    assert len(read) > 0


def test_a_zip_of_two_files_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as file:
        file.writestr("a.csv", "id\n7\n")
        file.writestr("b.csv", "id\n7\n")

    with pytest.raises(InputError, match="contains 2 files"):
        open_rows(tmp_path / "b.zip")


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(InputError, match="There is no file"):
        open_rows(tmp_path / "nothing.jsonl")
    with pytest.raises(InputError, match="is a folder"):
        open_rows(tmp_path)


def test_an_unknown_extension_requires_the_format_option(tmp_path):
    with pytest.raises(ConfigError, match="--format"):
        open_rows(written(tmp_path, "a.dat", "1\n"))


def test_csv_on_standard_input_is_typed_by_column(monkeypatch):
    stream = io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"id,zip\n1,10115\n2,01067\n")))
    monkeypatch.setattr(sys, "stdin", stream)

    assert values(None, format="csv") == [{"id": 1, "zip": "10115"}, {"id": 2, "zip": "01067"}]


# CSV types


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1", "-2", "", "0"], [1, -2, None, 0]),
        (["007", "12"], ["007", "12"]),
        (["+49", "1"], ["+49", "1"]),
        (["12345678901234567890123", "1"], ["12345678901234567890123", "1"]),
        (["18446744073709551615"], [18446744073709551615]),
        (["18446744073709551616"], ["18446744073709551616"]),
        (["1.5", "2"], [1.5, 2]),
        (["12.50", "3.00"], [12.5, 3.0]),
        (["1.9", "1.10"], ["1.9", "1.10"]),
        (["0.1000000000000000055511151231257827"], ["0.1000000000000000055511151231257827"]),
        (["1e-07", "0.5"], [1e-07, 0.5]),
        (["12e5", "1"], ["12e5", "1"]),
        (["1.", ".5"], ["1.", ".5"]),
        (["1_000", "2"], ["1_000", "2"]),
        ([" 1", "2"], [" 1", "2"]),
        (["-0", "1"], ["-0", "1"]),
        (["Infinity", "1.5"], ["Infinity", "1.5"]),
        (["NaN", "1.5"], [None, 1.5]),
        (["NA", "3"], [None, 3]),
        (["NA", "DE"], ["NA", "DE"]),
        (["NA", "NA"], ["NA", "NA"]),
        (["true", "false", ""], [True, False, None]),
        (["true", "maybe"], ["true", "maybe"]),
        (["2013-01-01 05:00:00", ""], ["2013-01-01T05:00:00", None]),
        (["2013-01-01 05:00:00", "soon"], ["2013-01-01 05:00:00", "soon"]),
        (["2013-02-30 05:00:00"], ["2013-02-30 05:00:00"]),
        (["2013-01-01T05:00:00Z"], ["2013-01-01T05:00:00Z"]),
        (["", ""], [None, None]),
    ],
)
def test_a_csv_column_is_typed_only_where_the_text_can_be_restored(tmp_path, texts, expected):
    found = column(tmp_path, *texts)

    assert found == expected
    assert list(map(type, found)) == list(map(type, expected))


def test_types_by_value_convert_only_canonical_forms(tmp_path):
    found = column(tmp_path, "1", "007", "1.5", "1.50", "true", "", "NA", types="value")

    assert found == [1, "007", 1.5, "1.50", True, None, "NA"]


def test_text_types_convert_only_empty_fields(tmp_path):
    assert column(tmp_path, "1", "true", "", types="text") == ["1", "true", None]


def test_a_null_text_is_null_in_every_column(tmp_path):
    assert column(tmp_path, "n/k", "x", "-", nulls=("n/k", "-")) == [None, "x", None]
    assert column(tmp_path, "-", "3", nulls=("-",)) == [None, 3]


def test_the_notes_report_how_na_was_read(tmp_path):
    rows = open_rows(written(tmp_path, "a.csv", "delay,tail\n3,N1\nNA,NA\n"))
    list(rows)

    assert "null in delay" in rows.notes[0]
    assert "stayed text in tail" in rows.notes[1]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), min_size=1), min_size=1))
def test_the_texts_of_a_numeric_column_can_be_restored_from_its_values(texts):
    kinds = 0
    for text in texts:
        kinds |= column_types.kind_of(text)
    convert = column_types.conversion(kinds)

    for text in texts:
        value = convert(text)
        if isinstance(value, str):
            assert value in (text, text.replace(" ", "T", 1))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            assert Decimal(repr(value)) == Decimal(text)


@given(st.one_of(st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False)))
def test_every_number_that_python_formats_round_trips(number):
    value = column_types.conversion(column_types.kind_of(repr(number)))(repr(number))

    assert value == number
    assert type(value) is type(number)


# CSV records


def test_quotes_line_breaks_and_delimiters_inside_fields_are_preserved(tmp_path):
    path = written(tmp_path, "a.csv", 'id,text\r\n1,"a ""b"",\nc"\r\n2,d\r\n')
    rows = list(open_rows(path))

    assert [row.value for row in rows] == [{"id": 1, "text": 'a "b",\nc'}, {"id": 2, "text": "d"}]
    assert [row.position for row in rows] == [3, 4]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"1,2,3", "3 fields where the header has 2"),
        (b"1", "1 fields where the header has 2"),
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


@pytest.mark.parametrize("name", ["bad.jsonl.gz", "bad.csv.zip"])
def test_an_uncompressed_file_with_a_compressed_extension_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="its content is not compressed that way"):
        values(written(tmp_path, name, '{"n": 1}\n'))


def test_skip_keeps_the_column_types_of_the_whole_file(tmp_path):
    assert values(written(tmp_path, "a.csv", "v\nx\n1\n"), skip=2) == [{"v": "1"}]


# Parquet


def test_parquet_values_are_represented_in_json_without_loss(tmp_path):
    moment = datetime(2013, 1, 1, 5, 0, 0, 123456, tzinfo=UTC)
    table = pyarrow.table(
        {
            "big": pyarrow.array([2**62, None], pyarrow.int64()),
            "at": pyarrow.array([moment, None], pyarrow.timestamp("us", tz="Europe/Berlin")),
            "local": pyarrow.array([1_000_000_001, None], pyarrow.timestamp("ns")),
            "day": pyarrow.array([date(2013, 1, 1), None]),
            "clock": pyarrow.array([time(5, 6, 7), None]),
            "took": pyarrow.array([timedelta(seconds=1.5), None]),
            "price": pyarrow.array([Decimal("12.50"), None]),
            "raw": pyarrow.array([b"\xff\x00", None]),
            "tags": pyarrow.array([["a", "b"], None]),
            "inner": pyarrow.array([{"x": 1, "b": b"\x00"}, None]),
            "kind": pyarrow.array(["a", None]).dictionary_encode(),
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")

    first, second = values(tmp_path / "a.parquet")

    assert encode_value(first) == (
        b'{"big":4611686018427387904,"at":"2013-01-01T05:00:00.123456Z","local":"1970-01-01T00:00:01.000000001",'
        b'"day":"2013-01-01","clock":"05:06:07.000000","took":"PT1.5S","price":"12.50","raw":"/wA=","tags":["a","b"],'
        b'"inner":{"x":1,"b":"AA=="},"kind":"a"}'
    )
    assert set(second.values()) == {None}


def test_parquet_is_detected_by_its_first_bytes_and_read_row_by_row(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"id": list(range(3000))}), tmp_path / "a.data")

    rows = open_rows(tmp_path / "a.data", skip=2500)

    assert [row.position for row in rows] == list(range(2501, 3001))
    assert rows.progress() == (3000, 3000)


def test_a_damaged_parquet_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="not a Parquet file"):
        values(written(tmp_path, "a.parquet", "PAR1 nonsense"))


# keys


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"k": "a"}', "a"),
        ('{"k": 7}', 7),
        ('{"k": 12345678901234567890123}', 12345678901234567890123),
        ('{"k": 1.10}', "1.10"),
        ('{"k": true}', "true"),
        ('{"k": null}', None),
    ],
)
def test_the_key_is_the_value_of_the_field(tmp_path, line, expected):
    (row,) = open_rows(written(tmp_path, "a.jsonl", line))

    assert key_of(row, "k") == expected


@pytest.mark.parametrize("line", ["{}", "7", '{"k": [1]}', '{"k": {}}'])
def test_a_row_without_a_usable_key_is_invalid(tmp_path, line):
    (row,) = open_rows(written(tmp_path, "a.jsonl", line))

    with pytest.raises(InvalidMessage, match="key"):
        key_of(row, "k")


def test_stop_ends_the_iteration_after_the_current_row(tmp_path):
    rows = open_rows(written(tmp_path, "a.jsonl", "1\n2\n3\n"))
    reading = iter(rows)
    next(reading)

    rows.stop()

    assert list(reading) == []
