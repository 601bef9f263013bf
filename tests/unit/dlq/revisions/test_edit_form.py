"""The form of a page: what it shows, and what its texts mean."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from producer_core.dlq import DeadLetterFilter
from producer_core.dlq.revisions.changes import UNCHANGED
from producer_core.dlq.revisions.edit_form import change_of, edit_form, named_change
from producer_core.dlq.revisions.editor import Editor
from producer_core.dlq.revisions.refusal import NotEdited
from tests.fixtures.edits import add, edit, fields, json_dead_letter, malformed

VALUE = {
    "order": 1,
    "amount": 12.5,
    "password": "hunter2",
    "items": [{"token": "a", "n": 1}, {"token": "b", "n": 2}],
}
HEADERS = (
    ("trace", b"t1"),
    ("authorization", b"Bearer abcdef"),
    ("raw", b"\xff"),
    ("twice", b"1"),
    ("twice", b"2"),
    ("null", None),
)


@pytest.fixture
def edited(store):
    (one,) = add(store, json_dead_letter(1, VALUE, headers=HEADERS))
    return Editor(store).decoded(one)


def change(edited, **texts):
    return change_of(edited, replace(edit_form(edited).draft, **texts))


def changed_value(edited, alter):
    shown = json.loads(edit_form(edited).value)
    alter(shown)
    return change(edited, value=json.dumps(shown)).value


def test_the_form_shows_the_value_masked_and_only_headers_that_can_be_edited(edited):
    form = edit_form(edited)

    assert "hunter2" not in form.value and json.loads(form.value)["amount"] == 12.5
    assert json.loads(form.headers) == {"trace": "t1", "null": None}
    assert form.locked_headers == ("authorization", "raw", "twice")
    assert (form.base, form.edits_value, form.edits_key, form.problem) == (0, True, False, "")


def test_texts_that_are_not_changed_change_nothing(edited):
    made = change(edited)

    assert made.value is UNCHANGED and made.set_headers == () and made.unset_headers == ()
    assert change(edited, value=edit_form(edited).value + "\n").value is UNCHANGED


def test_a_masked_field_that_stays_keeps_its_content(edited):
    assert changed_value(edited, lambda shown: shown.update(amount=7)) == VALUE | {"amount": 7}


def test_a_changed_or_moved_masked_field_is_refused_when_it_is_planned(store, edited):
    editor = Editor(store)
    for alter in (
        lambda shown: shown.update(password="new"),
        lambda shown: shown.pop("password"),
        lambda shown: shown["items"].pop(0),  # or the token of the first item would belong to the second
        lambda shown: shown.update(copy=shown["password"]),
    ):
        shown = json.loads(edit_form(edited).value)
        alter(shown)
        made = change(edited, value=json.dumps(shown))

        assert editor.preview(DeadLetterFilter(), made).refused == {"masked": 1}


def test_headers_are_set_and_removed(edited):
    made = change(edited, headers='{"trace": "t2", "new": null}')

    assert made.set_headers == (("trace", b"t2"), ("new", None)) and made.unset_headers == ("null",)


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ({"value": '{"order": 1,\n}'}, r"The value cannot be saved: it is not JSON \(line 2, column 1"),
        ({"value": ""}, "The value cannot be saved"),
        ({"value": '{"a": 1, "a": 2}'}, "a field appears twice"),
        ({"value": "NaN"}, "NaN is not JSON"),
        ({"headers": "[]"}, "not a JSON object"),
        ({"headers": '{"a": 1}'}, "not a JSON object"),
        ({"headers": "{"}, "The headers cannot be saved"),
    ],
)
def test_a_text_that_is_not_valid_names_the_place(edited, texts, says):
    with pytest.raises(NotEdited, match=says):
        change(edited, **texts)


def test_unchanged_numbers_keep_their_digits(store):
    (one,) = add(
        store, replace(json_dead_letter(1), value=b'{"n": 1.10, "big": 12345678901234567890.12, "a": 1}')
    )
    editor = Editor(store)
    decoded = editor.decoded(one)
    shown = json.loads(edit_form(decoded).value) | {"a": 2}

    (planned,) = editor.preview(DeadLetterFilter(), change(decoded, value=json.dumps(shown))).planned
    assert planned.value == b'{"n":1.10,"big":12345678901234567890.12,"a":2}'


def test_malformed_input_shows_its_text_and_becomes_json(store):
    (one,) = add(store, malformed(1))
    decoded = Editor(store).decoded(one)
    form = edit_form(decoded)

    assert form.value == '{"order": 1,, "amount": 2}' and form.edits_key and "it is not JSON" in form.problem
    made = change(decoded, value='{"order": 1}', key="k1")
    assert (made.value, made.key) == ({"order": 1}, b"k1")


def test_a_tombstone_has_no_value_to_edit(store):
    (one,) = add(store, replace(json_dead_letter(1), value=None))
    form = edit_form(Editor(store).decoded(one))

    assert not form.edits_value and "tombstone" in form.problem


def test_the_form_of_an_edited_record_starts_from_its_edit(store):
    (one,) = add(store, json_dead_letter(1, VALUE))
    edit(store, fields({"amount": 7}), one)
    decoded = Editor(store).decoded(one)

    assert edit_form(decoded).base == 1 and json.loads(edit_form(decoded).value)["amount"] == 7
    assert changed_value(decoded, lambda shown: shown.update(order=2)) == VALUE | {"amount": 7, "order": 2}


def test_a_change_is_named_by_its_fields_without_masked_values(edited):
    text = (
        edit_form(edited).value.replace("12.5", "13").replace('"n": 2', '"n": 3').replace('"order": 1,', "")
    )
    named = named_change(edited, change(edited, value=text))

    assert named.set == ((("amount",), 13), (("items", "1", "n"), 3))
    assert (named.unset, named.value) == ((("order",),), UNCHANGED)
    assert "hunter2" not in repr(named)


@pytest.mark.parametrize(
    "texts",
    [
        {"value": json.dumps({**VALUE, "items": [], "password": "***", "note": "4111 1111 1111 1111"})},
        {"value": json.dumps({**VALUE, "password": "***", "apiKey": "x"})},
        {"value": '{"password": "other"}'},
        {"headers": '{"trace": "ada@example.com", "null": null}'},
    ],
)
def test_a_change_that_shows_a_masked_value_has_no_name(edited, texts):
    assert named_change(edited, change(edited, **texts)) is None
