"""JSON lines: sent byte for byte, and malformed lines keep their bytes."""

from __future__ import annotations

import gzip

import pytest

from producer_core.cli.send.input_file import open_source
from producer_core.cli.send.json_rows import JsonRows
from producer_core.cli.send.open_rows import InputError, InputRow, MalformedRow, open_rows
from tests.fixtures.input_rows import values, written


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


@pytest.mark.parametrize(
    ("line", "reason"),
    [(b"hello\n", "is not JSON: unexpected character"), (b'"\xff"\n', "is not UTF-8 text.")],
)
def test_a_malformed_first_line_is_refused_with_its_reason_once(tmp_path, line, reason):
    rows = JsonRows(open_source(written(tmp_path, "a", line)), explicit=False)
    with pytest.raises(InputError) as refusal:
        list(rows)

    assert f"The first line of a {reason}" in refusal.value.what
    assert refusal.value.what.count("not JSON") == reason.count("not JSON")


def test_blank_lines_are_counted_and_skipped(tmp_path):
    rows = open_rows(written(tmp_path, "a.jsonl", "1\n\n   \n2\n"))

    assert [row.position for row in rows] == [1, 4]
    assert rows.blank == 2


def test_skip_omits_the_first_lines_and_keeps_the_line_numbers(tmp_path):
    assert [row.position for row in open_rows(written(tmp_path, "a.jsonl", "1\n2\n3\n"), skip=2)] == [3]


def test_a_byte_order_mark_is_not_part_of_the_first_line(tmp_path):
    assert values(written(tmp_path, "a.jsonl", b"\xef\xbb\xbf{}\n")) == [b"{}"]


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


def test_an_array_line_is_sent_if_more_lines_follow_or_the_format_is_explicit(tmp_path):
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
