"""Test starting a replay: one replay for a selection, and the reasons for none."""

from __future__ import annotations

from producer_core.dashboard import actions, queries
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.store import Store
from tests.fixtures import replay_pages as replay_pages_fixtures
from tests.fixtures.dead_letter_pages import dead_letter
from tests.fixtures.replay_actions import audit, only_replay
from tests.fixtures.replay_pages import ALL
from tests.fixtures.replays import add_dead_letters

store = replay_pages_fixtures.store


def test_two_users_replaying_the_same_selection_share_one_replay(store):
    add_dead_letters(store, 3)
    first = actions.start_replay(store, DeadLetterFilter(until=2000.0), shown=3, who="ann")
    second = actions.start_replay(store, DeadLetterFilter(until=3000.0), shown=3, who="bea")

    assert second.operation_id == first.operation_id == only_replay(store).operation_id
    assert "by ann. No second replay was created." in second.note


def test_a_replay_without_pending_records_reports_their_states(store):
    ids = tuple(add_dead_letters(store, 3))
    DeadLetters(store).archive(ALL, who="ann", origin="cli")

    done = actions.start_replay(store, DeadLetterFilter(ids=ids), shown=3)

    assert (done.ok, done.text) == (False, "None of the selected dead letters is pending: 3 are archived.")
    assert queries.operations(store) == []


def test_a_refused_click_is_audited(path):
    store = Store.open(path)
    add_dead_letters(store, 2)

    done = actions.start_replay(store, ALL)

    assert not done.ok
    ((action, outcome),) = audit(store)
    assert action == "replay" and outcome.startswith("Refused: No process with a client configuration")


def test_a_replay_without_a_runner_is_refused_with_a_message(path):
    store = Store.open(path)
    DeadLetters(store).add([dead_letter(1)])
    done = actions.start_replay(store, DeadLetterFilter())
    assert not done.ok
    assert "Start a producer on this store" in done.text
