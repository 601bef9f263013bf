"""The types of CSV columns: a text is converted only if it can be restored."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core.cli.send import column_types
from tests.fixtures.input_rows import values, written


def column(tmp_path, *texts, **options):
    lines = ["name,value", *(f"x,{text}" for text in texts)]
    return [value["value"] for value in values(written(tmp_path, "c.csv", "\n".join(lines)), **options)]


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
def test_a_csv_column_is_typed_only_if_the_text_can_be_restored(tmp_path, texts, expected):
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


@pytest.mark.slow
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


@pytest.mark.slow
@given(st.one_of(st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False)))
def test_every_number_that_python_formats_round_trips(number):
    value = column_types.conversion(column_types.kind_of(repr(number)))(repr(number))

    assert value == number
    assert type(value) is type(number)
