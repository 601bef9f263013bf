"""Masked fields cannot be edited, so that the mask never becomes content."""

from __future__ import annotations

import pytest

from producer_core._internal.secret_patterns import HIDDEN
from producer_core.dlq.revisions import masked_fields
from producer_core.dlq.revisions.changes import FunctionChange
from producer_core.dlq.revisions.editor import Editor
from producer_core.dlq.revisions.refusal import NotEdited
from producer_core.dlq.revisions.sql_change import SqlChange
from tests.fixtures.edits import ANN, add, fields, json_dead_letter
from tests.fixtures.replays import ALL

SECRET = {
    "order": 1,
    "password": "hunter2",
    "user": {"token": "abc", "name": "Ada"},
    "cards": ["4111111111111111"],
}
HEADERS = (("authorization", b"Bearer abcdef"), ("trace", b"t"))


@pytest.mark.parametrize(
    "change",
    [
        fields({"password": "new"}),
        fields({"user.token": "new"}),
        fields({"user": {"name": "Ada"}}),
        fields(unset=["password"]),
        fields(value={"order": 1}),
        fields({"cards[0]": "1"}),
        fields(
            value={
                "order": 2,
                "password": HIDDEN,
                "user": {"token": HIDDEN, "name": "Ada"},
                "cards": [HIDDEN],
            }
        ),
        fields({"note": f"see {HIDDEN}"}),
        fields({HIDDEN: 1}),
        fields(headers={"authorization": "Bearer new"}),
        fields(headers={"note": HIDDEN}),
        fields(unset_headers=["authorization"]),
        SqlChange('json_merge_patch(value, \'{"password": "new"}\')'),
        FunctionChange(lambda value: value | {"password": "new"}),
    ],
)
def test_a_change_of_a_masked_field_is_refused(store, clock, change):
    add(store, json_dead_letter(1, SECRET, headers=HEADERS))
    editor = Editor(store, clock=clock)

    preview = editor.preview(ALL, change)

    assert (preview.count, preview.refused) == (0, {"masked": 1})
    assert editor.keep(preview, **ANN, reason="x").count == 0
    for secret in ("hunter2", "abcdef", "4111111111111111", "'abc'"):
        assert secret not in str(preview.refusals) + str(preview.samples)


def test_other_fields_of_a_record_with_masked_ones_are_edited(store, clock):
    add(store, json_dead_letter(1, SECRET, headers=HEADERS))
    editor = Editor(store, clock=clock)

    preview = editor.preview(ALL, fields({"user.name": "Eve"}, headers={"trace": "u"}))
    editor.keep(preview, **ANN, reason="x")

    found = editor.decoded(preview.planned[0].message_id)
    assert found.now.view == SECRET | {"user": {"token": "abc", "name": "Eve"}}
    assert dict(found.headers) == {"authorization": b"Bearer abcdef", "trace": b"u"}
    assert not any("hunter2" in str(sample) for sample in preview.samples)


def test_a_mask_that_the_original_contains_may_stay():
    masked_fields.check_value({"note": HIDDEN, "a": 1}, {"note": HIDDEN, "a": 2})
    with pytest.raises(NotEdited):
        masked_fields.check_value({"note": HIDDEN, "a": 1}, {"other": HIDDEN, "a": 1})


def test_the_mask_never_becomes_the_value_of_bytes_without_fields():
    with pytest.raises(NotEdited):
        masked_fields.check_whole_value(b'{"password": "hunter2",,}', {"password": HIDDEN})
    with pytest.raises(NotEdited):
        masked_fields.check_key(HIDDEN.encode())


TYPED = {"name": "password", "value": "hunter2", "note": "x"}


@pytest.mark.parametrize(
    "change",
    [
        fields({"name": "colour"}),  # the value of a field with a secret name is masked, and now would not be
        SqlChange("json_merge_patch(value, json_object('note', value->>'value'))"),
        SqlChange("json_merge_patch(value, json_object('note', concat('was ', value->>'value')))"),
        SqlChange("json_merge_patch(value, json_object(value->>'value', 1))"),
        FunctionChange(lambda value: value | {"copy": {"of": [value["value"]]}}),
    ],
)
def test_a_change_that_would_show_a_masked_value_is_refused(store, clock, change):
    add(store, json_dead_letter(1, TYPED))

    preview = Editor(store, clock=clock).preview(ALL, change)

    assert (preview.count, preview.refused) == (0, {"masked": 1})
    assert "hunter2" not in str(preview.refusals) + str(preview.samples)


def test_a_change_with_a_text_that_only_has_a_short_masked_value_in_it_is_kept(store, clock):
    add(store, json_dead_letter(1, {"password": "1", "amount": 5, "note": "1", "token": "note"}))

    preview = Editor(store, clock=clock).preview(ALL, fields({"amount": 10, "note": "11"}))

    assert (preview.count, preview.refused) == (1, {})
