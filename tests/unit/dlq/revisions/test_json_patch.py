"""The difference of two JSON values, and its application."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core.dlq.revisions.json_patch import apply, diff, equal, pointer, steps_of

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4), max_leaves=12
)  # fmt: skip


@given(VALUES, VALUES)
def test_a_difference_turns_the_first_value_into_the_second(before, after):
    assert equal(apply(before, diff(before, after)), after)


@given(VALUES)
def test_equal_values_have_no_difference(value):
    assert diff(value, value) == []


def test_a_difference_names_only_what_changed():
    before = {"a": {"b": [1, 2, 3]}, "c/d": "x", "e": True}
    after = {"a": {"b": [1, 5]}, "c/d": "x", "e": 1, "f": None}

    assert diff(before, after) == [
        {"op": "replace", "path": "/a/b/1", "value": 5},
        {"op": "remove", "path": "/a/b/2"},
        {"op": "replace", "path": "/e", "value": 1},
        {"op": "add", "path": "/f", "value": None},
    ]


def test_a_number_that_lost_digits_in_a_float_is_not_changed():
    assert diff({"n": 12345678901234567890123}, {"n": 12345678901234567890123.0}) == []
    assert diff({"n": 10}, {"n": 11}) != []


@given(st.lists(st.text(max_size=4), max_size=4))
def test_a_pointer_gives_its_steps_back(steps):
    assert list(steps_of(pointer(steps))) == steps


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": ""},
        {"op": "replace", "path": "/missing", "value": 1},
        {"op": "remove", "path": "/list/7"},
        {"op": "replace", "path": "/list/x", "value": 1},
    ],
)
def test_an_operation_that_does_not_fit_is_refused(operation):
    with pytest.raises(ValueError):
        apply({"list": [1]}, [operation])


def test_the_given_document_stays_unchanged():
    document = {"a": [1]}

    apply(document, [{"op": "add", "path": "/a/1", "value": 2}])

    assert document == {"a": [1]}
