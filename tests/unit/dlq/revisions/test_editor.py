"""Edits of dead letters: what a replay sends then, undo, and two editors."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from producer_core import replay
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.revisions.changes import FunctionChange
from producer_core.dlq.revisions.editor import Editor
from producer_core.dlq.revisions.sql_change import SqlChange
from producer_core.dlq.timeline import timeline
from producer_core.errors import ConfigError, StoreTooNew
from producer_core.replay.claims import RecordOutcome, ReplayClaims
from producer_core.replay.selection_counts import count_schema_ids
from producer_core.store import required_features
from tests.fixtures.edits import ANN, add, edit, fields, json_dead_letter, malformed, state_of, undo
from tests.fixtures.replays import (
    ALL,
    BY,
    ScriptedSender,
    message_id,
    planned,
    runner,
)
from tests.support import eventually

DOUBTFUL = {"verdict": "possibly_persisted", "failed_at": 0.0}


def sent_by_replay(store, clock, *, ids=(), sender=None, **choices):
    """Replay these dead letters, or all, to the end; return the records that were sent."""
    sender = sender or ScriptedSender()
    selection = DeadLetterFilter(ids=tuple(ids)) if ids else ALL
    operation = planned(store, clock, selection, inconclusive="send", **choices)
    running = runner(store, sender, clock)
    running.start()
    try:
        eventually(lambda: replay.get(store, operation.operation_id).ended, timeout=30)
    finally:
        running.stop()
    return sender.sent


def value_of(record):
    return json.loads(record.value)


@pytest.mark.parametrize("verdict", ["rejected", "not_sent"])
def test_a_replay_sends_the_edit_under_the_same_id_if_the_original_is_not_on_its_topic(store, clock, verdict):
    (one,) = add(store, json_dead_letter(1, verdict=verdict))

    result = edit(store, fields({"amount": 7}), one, clock=clock)
    (sent,) = sent_by_replay(store, clock)

    assert (result.count, result.left, result.replacements) == (1, 0, {})
    assert sent.message_id == one and value_of(sent) == {"order": 1, "amount": 7}
    assert dict(sent.headers)["pc-revision"] == b"1" and "pc-replaces" not in dict(sent.headers)
    assert state_of(store, one) == "replayed"
    assert DeadLetters(store).get(one).value == json_dead_letter(1).value


def test_the_edit_of_a_record_that_may_be_on_its_topic_is_a_new_message(store, clock):
    (one,) = add(store, json_dead_letter(1, **DOUBTFUL))

    result = edit(store, fields({"amount": 7}, headers={"fixed": "yes"}), one, clock=clock)
    (sent,) = sent_by_replay(store, clock)

    new = result.replacements[one]
    headers = dict(sent.headers)
    assert sent.message_id == new != one and value_of(sent) == {"order": 1, "amount": 7}
    assert (
        headers["pc-replaces"] == one.encode()
        and headers["pc-revision"] == b"1"
        and headers["fixed"] == b"yes"
    )
    assert (state_of(store, one), state_of(store, new)) == ("archived", "replayed")
    assert "replaced" in [event.what for event in timeline(store, one)]


@pytest.mark.parametrize("verdict", ["rejected", "possibly_persisted"])
def test_an_edited_record_and_its_original_are_never_both_sent(store, clock, verdict):
    """Neither together, nor the original later: by a restore, by a late report of the producer, or by another replay."""
    (one,) = add(store, json_dead_letter(1, verdict=verdict, failed_at=0.0))
    before = planned(store, clock, check_first=True)
    edit(store, fields({"amount": 7}), one, clock=clock)
    replay.cancel(store, before.operation_id, **BY)

    everything = sent_by_replay(store, clock)
    dead = DeadLetters(store, clock=clock)
    dead.restore(DeadLetterFilter(ids=(one,), state="archived"), **BY)
    assert dead.count(ALL) == 0
    if verdict == "possibly_persisted":
        dead.add([json_dead_letter(1, verdict=verdict, failed_at=0.0)])  # again from a spill file
        dead.add([json_dead_letter(1, verdict="rejected", failed_at=6000.0)])  # or as a later failure
        assert dead.count(ALL) == 0
    everything += sent_by_replay(store, clock) if dead.count(ALL) else []

    assert [value_of(record)["amount"] for record in everything] == [7]


@pytest.mark.parametrize("marked", [True, False])
def test_a_wave_sends_edited_records_as_their_revisions(store, clock, marked):
    ids = add(store, *(json_dead_letter(number) for number in range(60)))
    edit(store, fields({"amount": 7}), ids[20], ids[21], clock=clock)
    operation = planned(store, clock)
    edit(store, fields({"amount": 8}), ids[40], clock=clock)  # after the plan
    undo(store, ids[21], clock=clock)
    if not marked:
        with store.borrow(write=True) as connection:
            connection.execute("UPDATE operation_records SET revision = NULL")
    claims = ReplayClaims(store, operation.operation_id, "first", lease=15, clock=clock)
    assert claims.take()

    amounts = {}
    update = claims.settle_and_claim([], want=10, busy=False, wave=50)
    while not update.over:
        records = list(update.dead_letters)
        amounts |= {record.message_id: value_of(record)["amount"] for record in records}
        outcomes = [RecordOutcome(record.message_id, "acknowledged", None, 0, 1) for record in records]
        update = claims.settle_and_claim(outcomes, want=10, busy=False, wave=50)

    assert amounts == dict.fromkeys(ids, 12.5) | {ids[20]: 7, ids[40]: 8}


def test_a_malformed_input_becomes_sendable_by_an_edit_and_not_sendable_by_undo(store, clock):
    (one,) = add(store, malformed(1))

    result = edit(store, fields(value={"order": 1, "amount": 2}, key=b"k1"), one, clock=clock)
    assert result.count == 1 and DeadLetters(store).get(one).replayable
    undo(store, one, clock=clock)
    assert not DeadLetters(store).get(one).replayable
    edit(store, fields(value={"order": 1, "amount": 3}, key=b"k1"), one, clock=clock)
    (sent,) = sent_by_replay(store, clock)

    assert (sent.message_id, sent.key, value_of(sent)) == (one, b"k1", {"order": 1, "amount": 3})
    assert dict(sent.headers)["pc-revision"] == b"2"
    assert state_of(store, one) == "replayed"


def test_an_edit_that_failed_again_keeps_the_original_and_can_be_edited_again(store, clock):
    (one,) = add(store, json_dead_letter(1))
    edit(store, fields({"amount": 7}), one, clock=clock)
    clock.forward(1_000)

    sent_by_replay(store, clock, sender=ScriptedSender(refuse=[one]))
    again = DeadLetters(store).get(one)
    edit(store, fields({"order": 2}), one, clock=clock)
    (sent,) = sent_by_replay(store, clock, allow_quarantined=True)

    assert again.value == json_dead_letter(1).value and again.state == "dead" and len(again.attempts) == 2
    assert value_of(sent) == {"order": 2, "amount": 7} and dict(sent.headers)["pc-revision"] == b"2"


def test_undo_applies_the_previous_revision_and_then_the_original(store, clock):
    (one,) = add(store, json_dead_letter(1))
    edit(store, fields({"amount": 7}), one, clock=clock)
    edit(store, fields({"amount": 8}), one, clock=clock)

    assert undo(store, one, clock=clock).count == 1
    assert Editor(store).decoded(one).now.view["amount"] == 7
    assert undo(store, one, clock=clock).count == 1
    third = undo(store, one, clock=clock)
    (sent,) = sent_by_replay(store, clock)

    assert (third.count, third.left) == (0, 1) and "has no edit" in third.text
    assert sent.value == json_dead_letter(1).value and "pc-revision" not in dict(sent.headers)
    revisions = Editor(store).lineage(one).revisions
    assert [(one.number, one.undone_by) for one in revisions] == [(1, "ann"), (2, "ann")]


def test_undo_of_a_new_message_restores_its_original(store, clock):
    (one,) = add(store, json_dead_letter(1, **DOUBTFUL))
    new = edit(store, fields({"amount": 7}), one, clock=clock).replacements[one]

    assert undo(store, new, clock=clock).count == 1

    assert (state_of(store, one), state_of(store, new)) == ("dead", None)
    lineage = Editor(store).lineage(one)
    assert [(one.number, one.undone_by) for one in lineage.revisions] == [
        (1, "ann")
    ] and lineage.replaced_by is None
    assert edit(store, fields({"amount": 9}), one, clock=clock).count == 1


def test_a_claimed_edit_can_neither_be_undone_nor_changed(store, clock):
    (one,) = add(store, json_dead_letter(1))
    edit(store, fields({"amount": 7}), one, clock=clock)
    operation = planned(store, clock)
    claims = ReplayClaims(store, operation.operation_id, "first", lease=15, clock=clock)
    assert claims.take() and len(claims.settle_and_claim([], want=10, busy=False).dead_letters) == 1

    undone = undo(store, one, clock=clock)
    editor = Editor(store, clock=clock)
    preview = editor.preview(DeadLetterFilter(ids=(one,), state=None), fields({"amount": 8}))

    assert (undone.count, undone.left) == (0, 1) and "is replaying" in undone.text
    assert preview.count == 0 and preview.refused["state"] == 1


def test_a_sent_edit_that_may_have_arrived_is_not_undone_and_its_next_edit_is_a_new_message(store, clock):
    (one,) = add(store, json_dead_letter(1))
    edit(store, fields({"amount": 7}), one, clock=clock)
    DeadLetters(store, clock=clock).add([json_dead_letter(1, verdict="possibly_persisted", failed_at=5500.0)])

    undone = undo(store, one, clock=clock)
    result = edit(store, fields({"order": 5}), one, clock=clock)

    assert undone.count == 0 and "may be on the topic" in undone.text
    new = result.replacements[one]
    assert json.loads(Editor(store).lineage(new).revisions[0].value) == {"order": 5, "amount": 7}


def test_an_undo_of_an_original_and_of_its_edit_is_one_undo(store, clock):
    (one,) = add(store, json_dead_letter(1, **DOUBTFUL))
    new = edit(store, fields({"amount": 7}), one, clock=clock).replacements[one]

    undone = Editor(store, clock=clock).undo(DeadLetterFilter(ids=(one, new), state=None), **ANN)

    assert (undone.count, undone.left) == (1, 0) and undone.text.startswith("Undid 1 edit.")


@pytest.mark.parametrize("verdict", ["not_sent", "possibly_persisted"])
def test_an_original_whose_edit_was_purged_comes_back_unless_the_edit_may_have_arrived(store, clock, verdict):
    (one,) = add(store, json_dead_letter(1, **DOUBTFUL))
    new = edit(store, fields({"amount": 7}), one, clock=clock).replacements[one]
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE dead_letters SET verdict = ? WHERE message_id = ?", [verdict, new])
    dead, edited = DeadLetters(store, clock=clock), DeadLetterFilter(ids=(new,), state=None)
    dead.archive(edited, **BY)
    clock.forward(1)
    assert dead.purge(edited, **BY, confirmation="purge 1", min_age=0).count == 1

    undone = undo(store, one, clock=clock)

    came_back = verdict == "not_sent"
    assert (undone.count, undone.left) == ((1, 0) if came_back else (0, 1))
    assert dead.get(one).state == ("dead" if came_back else "archived")
    assert dead.get(new).state == "purged"
    if came_back:
        assert Editor(store).decoded(one).now.view == {"order": 1, "amount": 12.5}
    else:
        assert "may be on the topic" in undone.text


def test_of_two_editors_the_second_changes_nothing(store, clock):
    (one,) = add(store, json_dead_letter(1))
    editor, where = Editor(store, clock=clock), DeadLetterFilter(ids=(one,))
    first, second = editor.preview(where, fields({"amount": 7})), editor.preview(where, fields({"amount": 8}))

    assert editor.keep(second, **ANN, reason="eight").count == 1
    result = editor.keep(first, **ANN, reason="seven")

    assert (result.count, result.left) == (0, 1) and "changed since the preview" in result.text
    assert editor.decoded(one).now.view["amount"] == 8


@pytest.mark.parametrize("happens", ["archived", "doubtful", "claimed"])
def test_a_preview_is_not_kept_for_a_record_that_changed(store, clock, happens):
    (one,) = add(store, json_dead_letter(1))
    editor = Editor(store, clock=clock)
    preview = editor.preview(DeadLetterFilter(ids=(one,)), fields({"amount": 7}))
    if happens == "archived":
        DeadLetters(store, clock=clock).archive(ALL, **BY)
    elif happens == "doubtful":
        DeadLetters(store, clock=clock).add(
            [json_dead_letter(1, verdict="possibly_persisted", failed_at=5500.0)]
        )
    else:
        DeadLetters(store, clock=clock).claim("r-1", [one])

    assert editor.keep(preview, **ANN, reason="seven").count == 0
    assert Editor(store).lineage(one).revisions == ()


def test_many_records_are_edited_by_sql_and_by_a_function(store, clock):
    add(store, *(json_dead_letter(number, {"order": number, "amount": number}) for number in range(20)))
    editor = Editor(store, clock=clock)

    preview = editor.preview(
        ALL, SqlChange("CASE WHEN value->>'order' < '1' THEN json_merge_patch(value, '{\"amount\": 5}') END")
    )
    assert (preview.matched, preview.count, preview.unchanged) == (20, 1, 19)
    assert [str(one) for one in preview.samples[0].differences] == ["amount: 0 → 5"]
    function = editor.preview(ALL, FunctionChange(lambda value: {**value, "amount": value["amount"] * 2}))
    assert editor.keep(function, **ANN, reason="double").count == 19  # 2 * 0 is 0

    assert editor.decoded(message_id(7)).now.view == {"order": 7, "amount": 14}


def test_an_edit_needs_a_reason_and_is_audited(store, clock):
    (one,) = add(store, json_dead_letter(1))

    with pytest.raises(ConfigError, match="reason"):
        edit(store, fields({"amount": 7}), one, clock=clock, reason=" ")
    edit(store, fields({"amount": 7}), one, clock=clock, reason="wrong amount")

    (audited,) = store.rows("audit_latest", action="edit")
    assert (audited["who"], audited["count"]) == ("ann", 1) and "wrong amount" in audited["outcome"]
    (event,) = [event for event in timeline(store, one) if event.what == "edited"]
    assert (event.who, event.text) == ("ann", "revision 1: wrong amount")


def test_a_store_with_revisions_requires_a_version_that_knows_them(store, clock, monkeypatch):
    (one,) = add(store, json_dead_letter(1))
    edit(store, fields({"amount": 7}), one, clock=clock)
    operation = planned(store, clock)
    monkeypatch.setattr(
        required_features, "SUPPORTED", required_features.SUPPORTED - {required_features.REVISIONS}
    )

    claims = ReplayClaims(store, operation.operation_id, "first", lease=15, clock=clock)
    with pytest.raises(StoreTooNew, match="revisions"):
        claims.take()
        claims.settle_and_claim([], want=10, busy=False)
    assert state_of(store, one) == "dead"


def test_a_preview_that_changes_nothing_requires_no_feature(store, clock):
    (one,) = add(store, json_dead_letter(1))

    assert edit(store, fields({"amount": 12.5}), one, clock=clock).count == 0
    with store.borrow() as connection:
        assert ("revisions",) not in connection.execute("SELECT feature FROM required_features").fetchall()


def test_an_original_is_not_restored_after_its_sent_edit_expired(store, clock):
    (one,) = add(store, json_dead_letter(1, **DOUBTFUL))
    edit(store, fields({"amount": 7}), one, clock=clock, reason="secret reason")
    sent_by_replay(store, clock)
    clock.forward(400 * 86_400)
    with store.borrow(write=True) as connection:
        from producer_core.store.retention import Retention, prune

        prune(connection, Retention(), clock())
        (row,) = connection.execute("SELECT value, reason, replaced_id FROM dead_letter_revisions").fetchall()

    restored = DeadLetters(store, clock=clock).restore(DeadLetterFilter(ids=(one,), state="archived"), **BY)

    assert row == (None, "", one)
    assert restored.count == 0 and "replaced" in restored.text and state_of(store, one) == "archived"


def test_a_purge_deletes_the_content_of_revisions(store, clock):
    ids = add(store, json_dead_letter(1), json_dead_letter(2, **DOUBTFUL))
    edit(store, fields({"amount": 7}), *ids, clock=clock)
    dead = DeadLetters(store, clock=clock)
    dead.archive(ALL, **BY)
    clock.forward(200_000)
    everything = DeadLetterFilter(state="archived")

    dead.purge(everything, **BY, confirmation=dead.purge_phrase(everything))

    with store.borrow() as connection:
        rows = connection.execute("SELECT key, value, reason FROM dead_letter_revisions").fetchall()
    assert rows in ([], [(None, None, "")])


def test_the_size_of_an_edit_counts_in_a_planned_replay(store, clock):
    (one,) = add(store, json_dead_letter(1))
    operation = planned(store, clock)
    edit(store, fields({"note": "x" * 5_000}), one, clock=clock)

    def sizes():
        with store.borrow() as connection:
            return connection.execute(
                "SELECT size, revision FROM operation_records WHERE operation_id = ?",
                [operation.operation_id],
            ).fetchall()

    ((size, revision),) = sizes()
    assert size > 5_000 and revision == 1
    undo(store, one, clock=clock)
    assert sizes() == [(len(json_dead_letter(1).value) + 1, None)]


def test_an_original_that_an_earlier_version_wrote_again_is_not_planned(store, clock):
    (one,) = add(store, json_dead_letter(1, **DOUBTFUL))
    new = edit(store, fields({"amount": 7}), one, clock=clock).replacements[one]
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE dead_letters SET state = 'dead' WHERE message_id = ?", [one])

    assert [record.message_id for record in sent_by_replay(store, clock)] == [new]


def test_the_schema_ids_of_a_dry_run_are_those_of_the_edits(store, clock):
    (one,) = add(store, malformed(1))
    assert count_schema_ids(store, ALL) == []
    edit(store, fields(value={"order": 1}), one, clock=clock)
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE dead_letter_revisions SET value = ?", [b"\0\0\0\0\7{}"])

    assert [(found.schema_id, found.records) for found in count_schema_ids(store, ALL)] == [(7, 1)]


def test_the_edit_of_a_sent_edit_names_only_the_message_that_it_replaces(store, clock):
    (one,) = add(store, json_dead_letter(1, **DOUBTFUL))
    second = edit(store, fields({"amount": 7}), one, clock=clock).replacements[one]
    DeadLetters(store, clock=clock).add(
        [replace(DeadLetters(store).get(second), verdict="possibly_persisted", failed_at=4000.0)]
    )
    third = edit(store, fields({"order": 5}), second, clock=clock).replacements[second]

    (sent,) = sent_by_replay(store, clock)

    assert sent.message_id == third and value_of(sent) == {"order": 5, "amount": 7}
    assert [value for name, value in sent.headers if name == "pc-replaces"] == [second.encode()]


def test_a_dead_letter_without_a_known_topic_cannot_be_edited(store, clock):
    """A record of a dead-letter topic whose original topic no header names is not malformed input."""
    add(store, json_dead_letter(1, replayable=False, verdict="not_sent"))

    preview = Editor(store, clock=clock).preview(ALL, fields({"amount": 7}))

    assert preview.refused == {"state": 1} and "cannot be replayed" in preview.refusals[0].reason
