"""Test the buttons of the dead letters page, and the results that they show."""

from __future__ import annotations

import sys
import time

import pytest

from producer_core import replay
from producer_core.dashboard import actions, queries
from producer_core.dashboard.auth import access
from producer_core.dashboard.views import dead_letter_actions
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import StoreLocked
from producer_core.store import Store
from tests.fixtures import replay_pages as replay_pages_fixtures
from tests.fixtures.pages import text_of
from tests.fixtures.replay_actions import audit, bar, only_replay, redrawn
from tests.fixtures.replay_pages import ALL
from tests.fixtures.replays import CLUSTER, add_dead_letters, dead_letter, preflight_done

store = replay_pages_fixtures.store


@pytest.mark.slow
def test_one_click_replays_a_few_safe_dead_letters_without_a_canary(path, store):
    add_dead_letters(store, 3)
    page = bar(path)
    assert page.button(key="replay").label == "Replay 3"

    page.button(key="replay").click().run()

    assert not page.exception
    assert (only_replay(store).state, only_replay(store).total, only_replay(store).canary) == (
        "checking",
        3,
        0,
    )
    assert "a running producer picks it up within seconds" in text_of(page)
    assert "replay_confirm" not in [button.key for button in page.button], "no confirmation is needed"
    preflight_done(store, only_replay(store).operation_id)
    assert only_replay(store).state == "planned"


@pytest.mark.slow
@pytest.mark.parametrize("found", [{"newer_keys": 2}, {"too_large": 1}, {"partitions": None}])
def test_a_one_click_replay_waits_for_a_decision_if_the_preflight_finds_a_problem(path, store, found):
    add_dead_letters(store, 3)
    page = bar(path)
    page.button(key="replay").click().run()

    preflight_done(store, only_replay(store).operation_id, **found)
    page = redrawn(page)

    assert not page.exception
    assert only_replay(store).state == "ready"
    assert "Dry run: 3 records" in text_of(page)
    assert not page.button(key="replay_confirm").disabled


def test_the_page_warns_that_the_cause_may_still_be_active(path, store):
    add_dead_letters(store, 3, failed_at=time.time() - 20)
    assert "The cause may still be active: 3 new dead letters within 2 min" in text_of(bar(path))


@pytest.mark.slow
def test_the_result_of_a_replay_stands_above_the_warning_about_the_remaining_dead_letters(path, store):
    add_dead_letters(store, 3, failed_at=time.time() - 20)
    page = bar(path)
    page.button(key="replay").click().run()
    assert text_of(page).index("The cause may still be active") < text_of(page).index(
        "a running producer picks"
    )

    assert actions.cancel_replay(store, only_replay(store).operation_id).ok
    page = redrawn(page)

    assert text_of(page).index("ancelled") < text_of(page).index("The cause may still be active")


def test_the_page_does_not_warn_of_an_old_cause(path, store):
    add_dead_letters(store, 3)
    assert "Their cause" not in text_of(bar(path))


@pytest.mark.slow
def test_a_replay_larger_than_a_canary_sends_ten_records_first(path, store):
    add_dead_letters(store, 11)
    bar(path).button(key="replay").click().run()

    assert only_replay(store).canary == 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"verdict": "possibly_persisted"}, "may already be on the broker"),
        ({"verdict": "inconclusive"}, "may already be on the broker"),
        ({"replayable": False}, "1 record would be skipped (malformed, not edited)"),
    ],
)
def test_an_unsafe_selection_opens_the_dry_run(path, store, changes, reason):
    add_dead_letters(store, 2)
    DeadLetters(store).add([dead_letter(7, **changes)])
    page = bar(path)
    assert page.button(key="replay").label == "Replay 3 …"
    assert reason in text_of(page)

    page.button(key="replay").click().run()

    assert only_replay(store).state == "checking"
    assert page.button(key="replay_confirm").disabled


def test_a_large_selection_opens_the_dry_run(path, store, monkeypatch):
    monkeypatch.setattr(sys.modules["producer_core.dashboard.queries.replays"], "AT_ONCE", 2)
    add_dead_letters(store, 3)

    assert bar(path).button(key="replay").label == "Replay 3 …"


@pytest.mark.slow
def test_actions_apply_to_the_selected_dead_letters(path, store):
    ids = add_dead_letters(store, 4)
    page = bar(path, *ids[:2])
    assert page.button(key="replay").label == "Replay 2"
    assert page.button(key="clear").label == "Clear 2"

    page.button(key="replay").click().run()

    assert only_replay(store).total == 2


def test_a_double_click_acts_once(path, store, monkeypatch):
    monkeypatch.setattr(dead_letter_actions.st, "session_state", {})
    add_dead_letters(store, 3)
    offer = queries.offer(store, ALL, time.time())

    for _ in range(2):
        dead_letter_actions._replay(path, offer, dead_letter_actions.PressedButton(0))
    dead_letter_actions._clear(path, ALL, dead_letter_actions.PressedButton(0))

    assert only_replay(store).total == 3
    assert DeadLetters(store).count(ALL) == 3


@pytest.mark.slow
def test_a_replay_of_fewer_records_than_shown_reports_that(path, store):
    ids = add_dead_letters(store, 3)
    page = bar(path)
    DeadLetters(store).archive(DeadLetterFilter(ids=tuple(ids[:1])), who="ann", origin="cli")

    page.button(key="replay").click().run()

    assert only_replay(store).total == 2
    assert "1 of 3 was already handled by someone else." in text_of(page)


def test_without_a_runner_replay_is_disabled_and_the_command_is_shown(path):
    store = Store.open(path)
    add_dead_letters(store, 2)

    page = bar(path)

    assert page.button(key="replay").disabled
    assert not page.button(key="clear").disabled
    assert "These dead letters cannot be replayed now." in text_of(page)
    assert f"producer-core dlq replay --store={path} --bootstrap-servers HOST:PORT" in page.code[0].value


def test_dead_letters_of_another_cluster_are_not_replayed(path, store):
    add_dead_letters(store, 2, cluster_id="elsewhere")

    page = bar(path)

    assert page.button(key="replay").disabled
    assert f"come from the cluster elsewhere, but only {CLUSTER} can be reached" in text_of(page)


def test_read_only_users_see_disabled_buttons_and_their_actions_are_refused(path, store, monkeypatch):
    add_dead_letters(store, 2)
    for module in (access, actions):
        monkeypatch.setattr(module, "may_act", lambda *about: (False, "You have read-only access."))

    page = bar(path)
    done = actions.clear(store, ALL)

    assert page.button(key="replay").disabled and page.button(key="clear").disabled
    assert (done.ok, done.text) == (False, "You have read-only access.")
    assert audit(store) == [("archive", "Refused: You have read-only access.")]
    assert DeadLetters(store).count(ALL) == 2


@pytest.mark.slow
def test_a_click_on_a_locked_store_changes_nothing_and_shows_the_error(path, store, monkeypatch):
    def locked(*_, **__):
        raise StoreLocked

    add_dead_letters(store, 2)
    page = bar(path)
    monkeypatch.setattr(replay, "plan", locked)

    page.button(key="replay").click().run()

    assert not page.exception
    assert "Nothing was done. Another process holds the store" in text_of(page)
    assert queries.operations(store) == []
    monkeypatch.undo()
    page.button(key="replay").click().run()
    assert only_replay(store).total == 2


@pytest.mark.slow
def test_undo_restores_exactly_the_cleared_dead_letters(path, store):
    add_dead_letters(store, 3)
    page = bar(path)
    page.button(key="clear").click().run()
    assert "Archived 3 dead letters." in text_of(page)

    page.button(key="undo").click().run()

    assert "Restored 3 dead letters." in text_of(page)
    assert DeadLetters(store).count(ALL) == 3


def test_restore_returns_archived_dead_letters(path, store):
    add_dead_letters(store, 2)
    DeadLetters(store).archive(ALL, who="ann", origin="cli")
    page = bar(path, state="archived")

    page.button(key="restore").click().run()

    assert DeadLetters(store).count(ALL) == 2


@pytest.mark.slow
def test_clear_reports_records_that_a_replay_holds(path, store):
    add_dead_letters(store, 2)
    actions.start_replay(store, ALL, who="ann")
    page = bar(path)
    assert page.button(key="replay").label == "Replay 2 …"
    assert "2 records are already in a replay" in text_of(page)

    page.button(key="clear").click().run()

    assert "by ann skips 2 archived dead letters" in text_of(page)
