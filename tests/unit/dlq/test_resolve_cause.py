"""Causes that were marked as resolved, and those that came back."""

from __future__ import annotations

import pytest

from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.resolve_cause import reopen_cause, resolve_cause
from producer_core.dlq.revisions.editor import Editor
from producer_core.errors import ConfigError
from producer_core.store.resolved_causes import cause_status, cause_statuses
from tests.fixtures.dead_letters import NOW, dead_letter
from tests.fixtures.edits import fields


@pytest.fixture
def dead(store):
    dead = DeadLetters(store)
    dead.add([failed(1, NOW, "4.2.0"), failed(2, NOW, "4.1.9"), failed(3, NOW, fingerprint="f2")])
    return dead


def failed(number, at, version="", **fields):
    return dead_letter(number, failed_at=at, attempts=(), application_version=version, **fields)


def resolve(store, at=NOW + 10, **options):
    return resolve_cause(store, "f1", **{"who": "ada", "origin": "cli", "now": at, **options})


def test_a_resolved_cause_stays_resolved_until_a_message_fails_for_it(store, dead):
    assert resolve(store, note="Schema fixed.") == 2
    assert cause_status(store, "f1").is_resolved

    dead.add(
        [failed(4, NOW + 5, "4.2.0"), failed(5, NOW + 20, fingerprint="f2")]
    )  # late, and of another cause

    assert cause_status(store, "f1").is_resolved
    assert cause_status(store, "f2") is None


def test_a_cause_that_returns_has_the_version_of_its_first_failure_since(store, dead):
    resolve(store)
    dead.add([failed(4, NOW + 40, "4.2.2", topic="refunds"), failed(5, NOW + 30, "4.2.1")])

    status = cause_status(store, "f1")

    assert status.is_back and not status.is_resolved
    assert (status.present.back_at, status.present.back_in) == (NOW + 30, "4.2.1")
    assert (status.count, status.pending, status.topics) == (2, 2, ("orders", "refunds"))
    dead.archive(DeadLetterFilter(), who="ada", origin="cli")
    assert cause_status(store, "f1").is_back and cause_status(store, "f1").pending == 0


def test_with_the_version_of_the_fix_the_earlier_versions_may_go_on_failing(store, dead):
    resolve(store, fixed_in="4.2.1")

    dead.add([failed(4, NOW + 20, "4.2.0"), failed(5, NOW + 21, "4.1.9")])
    assert cause_status(store, "f1").is_resolved
    dead.add([failed(6, NOW + 22, "4.2.1")])
    assert cause_status(store, "f1").present.back_in == "4.2.1"


def test_a_fix_in_a_version_that_failed_before_is_checked_from_now_on(store, dead):
    resolve(store, fixed_in="4.2.0")
    dead.add([failed(4, NOW + 20, "4.2.0")])

    assert cause_status(store, "f1").is_back


def test_resolving_again_keeps_the_history(store, dead):
    resolve(store, fixed_in="4.2.1", note="Schema fixed.")
    dead.add([failed(4, NOW + 20, "4.2.1")])
    resolve(store, NOW + 30, who="bob", fixed_in="4.2.2")

    status = cause_statuses(store)["f1"]

    first, second = status.history
    assert (first.who, first.fixed_in, first.note) == ("ada", "4.2.1", "Schema fixed.")
    assert (first.back_at, first.back_in, first.ended_by) == (NOW + 20, "4.2.1", "bob")
    assert second.back_at is None and status.is_resolved
    assert [row["action"] for row in store.rows("audit_latest")] == ["resolve", "resolve"]


def test_a_failed_replay_brings_its_cause_back(store, dead):
    resolve(store)
    dead.add([failed(1, NOW + 20, "4.2.1")])  # the same message, after a replay

    assert cause_status(store, "f1").present.back_in == "4.2.1"


def test_a_reopened_cause_is_neither_resolved_nor_back(store, dead):
    resolve(store)
    reopen_cause(store, "f1", who="bob", origin="cli", now=NOW + 15)
    dead.add([failed(4, NOW + 20)])

    status = cause_status(store, "f1")

    assert not status.is_resolved and not status.is_back and status.history[0].ended_by == "bob"


def test_an_impossible_change_is_refused(store, dead):
    with pytest.raises(ConfigError, match="No dead letter has the cause"):
        resolve_cause(store, "f9", who="ada", origin="cli", now=NOW)
    with pytest.raises(ConfigError, match="is not resolved"):
        reopen_cause(store, "f1", who="ada", origin="cli", now=NOW)
    resolve(store)
    with pytest.raises(ConfigError, match="already resolved"):
        resolve(store)
    with pytest.raises(ConfigError, match="printable"):
        resolve_cause(store, "f2", who="ada", origin="cli", now=NOW, fixed_in="4\n2")


def test_an_edit_and_its_archived_original_are_one_dead_letter_of_the_cause(store, dead):
    resolve(store)
    (back,) = [failed(6, NOW + 20, "4.2.1", value=b'{"amount": 1}', verdict="possibly_persisted")]
    dead.add([back])
    editor = Editor(store, clock=lambda: NOW + 9_000)
    preview = editor.preview(DeadLetterFilter(ids=(back.message_id,)), fields({"amount": 2}))
    assert editor.keep(preview, who="ada", origin="cli", reason="wrong amount").count == 1

    status = cause_status(store, "f1")

    assert (status.count, status.pending, status.present.back_in) == (1, 1, "4.2.1")
    assert store.rows("cause_versions", fingerprint="f1")[-1] == {"version": "4.2.1", "count": 1}
