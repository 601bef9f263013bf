"""JSON whose unchanged numbers keep their digits."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core._internal.json_document import NotJson, natural, parse, write

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12
)  # fmt: skip


@given(VALUES)
def test_a_document_is_written_as_it_was_read(value):
    assert json.loads(write(parse(json.dumps(value).encode()))) == value
    assert natural(parse(json.dumps(value).encode())) == value


@pytest.mark.parametrize(
    "text",
    [
        "1.10",
        "1e2",
        "12345678901234567890123",
        "-0.0",
        "0.1000000000000000055511151231257827",
        '"é"',
        '"\\ud800"',
    ],
)
def test_numbers_and_texts_keep_their_form(text):
    assert write(parse(text.encode())).decode() == text


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"a": 1,}', "it is not JSON"),
        (b"\xff", "it is not UTF-8"),
        (b'{"a": 1, "a": 2}', "a field appears twice"),
        (b"[NaN]", "NaN is not JSON"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b"1" * 2000, "it has a number of more than 1,000 characters"),
    ],
)
def test_other_bytes_are_refused_with_the_reason(data, reason):
    with pytest.raises(NotJson, match=reason):
        parse(data)


@pytest.mark.parametrize("value", [float("nan"), {1: 2}, b"x", object()])
def test_a_value_that_json_does_not_have_is_refused(value):
    with pytest.raises(NotJson):
        write(value)
