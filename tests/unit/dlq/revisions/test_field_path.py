"""Paths to fields, as operators write them."""

from __future__ import annotations

import pytest

from producer_core.dlq.revisions.field_path import argument_of, parse_path, path_text, set_field, unset_field
from producer_core.dlq.revisions.refusal import NotEdited
from producer_core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("amount", ("amount",)),
        ("customer.items[0].price", ("customer", "items", "0", "price")),
        ('["a.b"].c', ("a.b", "c")),
        ("/customer/items/0", ("customer", "items", "0")),
        ("/a~1b", ("a/b",)),
        ("", ()),
        ("/", ()),
    ],
)
def test_a_path_has_steps(text, steps):
    assert parse_path(text) == steps


@pytest.mark.parametrize("text", ["a..b", "a.", ".a", "a[", "a[x]", "[0", "a b["])
def test_a_path_that_is_none_is_refused_with_an_example(text):
    with pytest.raises(ConfigError, match=r"customer\.items"):
        parse_path(text)


@pytest.mark.parametrize("text", ["a.b[0].c", '["a.b"].c', "x"])
def test_a_path_is_written_as_it_was_read(text):
    assert path_text(parse_path(text)) == text


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (("customer", "items", "0"), "customer.items[0]"),
        (("a.b", "c"), '["a.b"].c'),
        (("a b", "it's"), "a b.it's"),
        (('say "hi".',), '/say "hi".'),
        (("0", "1"), "0[1]"),
        (("x", ""), "/x/"),
        ((), "/"),
    ],
)
def test_a_path_has_an_argument_that_reads_as_the_same_path(steps, text):
    assert argument_of(steps) == text and parse_path(text) == steps


@pytest.mark.parametrize("steps", [("a=b",), ("x", " "), ("",)])
def test_a_path_that_no_argument_can_write_has_none(steps):
    assert argument_of(steps) is None


def test_fields_are_set_and_missing_objects_created():
    document = {"items": [{"price": 1}]}

    assert set_field(document, parse_path("items[0].price"), 2) == {"items": [{"price": 2}]}
    assert set_field(document, parse_path("customer.name"), "Ada")["customer"] == {"name": "Ada"}
    assert set_field(document, parse_path("items[1]"), 3)["items"] == [{"price": 2}, 3]


@pytest.mark.parametrize("path", ["items[5]", "items.name", "order.amount"])
def test_a_field_that_cannot_be_set_is_refused(path):
    with pytest.raises(NotEdited):
        set_field({"items": [1], "order": 7}, parse_path(path), 2)


def test_a_field_is_removed_and_a_missing_one_changes_nothing():
    document = {"a": {"b": 1, "c": 2}, "list": [1, 2]}

    assert unset_field(document, parse_path("a.b"))["a"] == {"c": 2}
    assert unset_field(document, parse_path("list[0]"))["list"] == [2]
    assert unset_field(document, parse_path("x.y.z")) == {"a": {"c": 2}, "list": [2]}
