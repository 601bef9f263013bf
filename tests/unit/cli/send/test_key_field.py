"""The key of a row is the value of one field."""

from __future__ import annotations

import pytest

from producer_core.cli.send.key_field import key_of
from producer_core.cli.send.open_rows import open_rows
from producer_core.errors import InvalidMessage
from tests.fixtures.input_rows import written


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


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ('{"id": 1, "name": "a"}', "Its fields: id, name."),
        ("{}", "It has no fields."),
        ('{"a\\nb": 1}', "Its fields: 'a\\nb'."),
        (f"{{{', '.join(f'{chr(34)}f{n}{chr(34)}: 1' for n in range(30))}}}", "f8, f9 and 20 more."),
    ],
    ids=["two", "none", "control characters", "many"],
)
def test_a_row_without_the_key_field_lists_its_fields(tmp_path, line, fields):
    (row,) = open_rows(written(tmp_path, "a.jsonl", line))

    with pytest.raises(InvalidMessage) as raised:
        key_of(row, "customer")

    assert str(raised.value).startswith("The row has no field 'customer' for the key. ")
    assert str(raised.value).endswith(fields)
