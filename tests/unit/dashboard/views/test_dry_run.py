"""Test the dry run on the dead letters page."""

from __future__ import annotations

import pytest

from producer_core import replay
from producer_core.dashboard import actions, queries
from producer_core.dlq import DeadLetterFilter, DeadLetters
from tests.fixtures import replay_pages as replay_pages_fixtures
from tests.fixtures.pages import text_of
from tests.fixtures.replay_actions import bar, only_replay, redrawn
from tests.fixtures.replay_pages import ALL
from tests.fixtures.replays import add_dead_letters, dead_letter, preflight_done

store = replay_pages_fixtures.store


HOSTILE = "<img src=x onerror=alert(1)> **bold**"


@pytest.mark.slow
def test_the_dry_run_waits_for_the_preflight_and_starts_with_the_choices(path, store):
    add_dead_letters(store, 12, verdict="possibly_persisted")
    page = bar(path)
    page.button(key="replay").click().run()
    one = only_replay(store).operation_id
    assert "12 records may already be on their topics: the replay searches for them first" in text_of(page)
    preflight_done(store, one, newer_keys=3)
    redrawn(page)
    assert page.button(key="replay_confirm").label == "Replay 9 now"

    page.number_input(key=f"go_rate_{one}").set_value(50.0)
    page.number_input(key=f"canary_{one}").set_value(4)
    page.number_input(key=f"stop_{one}").set_value(20.0)
    page.button(key="replay_confirm").click().run()

    assert not page.exception
    begun = only_replay(store)
    assert (begun.state, begun.rate, begun.canary, begun.stop_percent, begun.newer) == (
        "planned", 50.0, 4, 20.0, "skip",
    )  # fmt: skip


@pytest.mark.slow
def test_old_values_replace_newer_ones_only_on_request(path, store):
    add_dead_letters(store, 3, verdict="possibly_persisted")
    page = bar(path)
    page.button(key="replay").click().run()
    one = only_replay(store).operation_id
    preflight_done(store, one, newer_keys=2, cleanup_policy="compact")
    redrawn(page)
    assert page.button(key="replay_confirm").label == "Replay 1 now"

    page.segmented_control(key=f"newer_{one}").set_value("Send anyway").run()
    assert page.button(key="replay_confirm").label == "Replay 3 now"
    assert "will permanently replace a newer record with the same key" in text_of(page)
    page.button(key="replay_confirm").click().run()

    assert only_replay(store).newer == "send"


@pytest.mark.slow
def test_quarantined_dead_letters_are_replayed_only_on_request(path, store):
    add_dead_letters(store, 2)
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE dead_letters SET quarantined = true, replay_count = 3")
    DeadLetters(store).add([dead_letter(9)])
    page = bar(path)
    page.button(key="replay").click().run()
    one = only_replay(store).operation_id
    preflight_done(store, one)
    redrawn(page)
    assert page.button(key="replay_confirm").label == "Replay 1 now"

    page.toggle(key=f"quarantined_{one}").set_value(True).run()

    planned_again = queries.operations(store)[0]
    assert (planned_again.state, planned_again.left) == ("checking", 3)
    assert replay.get(store, one).state == "cancelled"
    preflight_done(store, planned_again.operation_id)
    assert redrawn(page).button(key="replay_confirm").label == "Replay 3 now"


@pytest.mark.slow
def test_a_discarded_replay_leaves_the_dead_letters_unchanged(path, store):
    add_dead_letters(store, 2, verdict="possibly_persisted")
    page = bar(path)
    page.button(key="replay").click().run()

    page.button(key="replay_discard").click().run()

    assert only_replay(store).state == "cancelled"
    assert DeadLetters(store).count(ALL) == 2
    assert "replay_confirm" not in [button.key for button in page.button]


@pytest.mark.slow
def test_the_dry_run_reports_records_archived_since_it_was_planned(path, store):
    ids = add_dead_letters(store, 3, verdict="possibly_persisted")
    page = bar(path)
    page.button(key="replay").click().run()
    DeadLetters(store).archive(DeadLetterFilter(ids=tuple(ids[:2])), who="ann", origin="cli")
    preflight_done(store, only_replay(store).operation_id)
    redrawn(page)

    assert page.button(key="replay_confirm").label == "Replay 1 now"
    assert "2 records are left out: archived or replayed after this replay was planned." in text_of(page)


def test_texts_of_dead_letters_and_users_are_escaped(path, store):
    add_dead_letters(store, 2, verdict="possibly_persisted", topic=HOSTILE)
    actions.plan_replay(store, ALL, who=HOSTILE)

    page = bar(path)

    assert not page.exception
    html = " ".join(element.body for element in page.get("html"))
    assert "<img" not in html
    assert "&lt;img" in html
