"""Test the page of one replay."""

from __future__ import annotations

import time

import pytest

from producer_core import replay
from producer_core.dashboard import actions
from producer_core.dashboard.wording import replays as replay_wording
from tests.fixtures import replay_pages as replay_pages_fixtures
from tests.fixtures.pages import text_of
from tests.fixtures.replay_pages import ALL, opened
from tests.fixtures.replays import add_dead_letters, preflight_done

store = replay_pages_fixtures.store


def test_an_unknown_replay_shows_a_message(path, store):
    page = opened(path, operation="nothing")

    assert not page.exception
    assert "This store has no replay nothing." in text_of(page)


@pytest.mark.slow
def test_a_replay_is_paused_resumed_at_another_rate_and_cancelled(path, store):
    add_dead_letters(store, 3)
    one = actions.start_replay(store, ALL).operation_id
    preflight_done(store, one)
    page = opened(path, operation=one)
    page.button(key=f"pause_{one}").click().run()
    assert replay.get(store, one).state == "paused"

    page.number_input(key=f"rate_{one}").set_value(5.0)
    page.button(key=f"resume_{one}").click().run()
    assert (replay.get(store, one).state, replay.get(store, one).rate) == ("planned", 5.0)

    page.button(key=f"cancel_{one}").click().run()
    assert replay.get(store, one).state == "cancelled"
    assert not page.exception
    assert "Cancelled: replayed 0 of 3; 3 skipped: cancelled before being sent." in text_of(page)
    assert [row["action"] for row in store.rows("replay_audit", operation=one)] == [
        "replay_end", "replay_cancel", "replay_resume", "replay_pause", "replay",
    ]  # fmt: skip


@pytest.mark.slow
def test_an_outdated_action_shows_why_it_failed(path, store):
    add_dead_letters(store, 3)
    one = actions.start_replay(store, ALL).operation_id
    preflight_done(store, one)
    page = opened(path, operation=one)
    replay.pause(store, one, who="bea", origin="cli")

    page.button(key=f"pause_{one}").click().run()

    assert not page.exception
    assert f"Cannot pause replay {one}: it is paused." in text_of(page)


@pytest.mark.slow
def test_an_open_decision_is_confirmed_on_the_replay_page(path, store):
    add_dead_letters(store, 2, verdict="possibly_persisted")
    one = actions.plan_replay(store, ALL).operation_id
    store.execute(
        "replay_checked", operation=one, checked='{"topics": [], "at": 0}', now=time.time(), message=""
    )

    listed = text_of(opened(path))
    assert "1 replay awaiting decision." in listed
    assert "Review and decide" in listed
    page = opened(path, operation=one)
    page.button(key="replay_confirm").click().run()

    assert not page.exception
    assert replay.get(store, one).state == "planned"


@pytest.mark.slow
def test_without_a_runner_the_page_shows_the_replay_command(path, store):
    add_dead_letters(store, 2)
    one = actions.start_replay(store, ALL).operation_id
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE producers SET seen_at = 0")

    page = opened(path, operation=one)

    assert "No running producer has credentials for this cluster." in text_of(page)
    assert page.code[0].value == f"producer-core dlq replay --store={path} --bootstrap-servers HOST:PORT"


@pytest.mark.slow
def test_the_page_shows_the_delivery_guarantee_with_its_reason(path, store):
    add_dead_letters(store, 2, cluster_id="embedded-1")
    one = replay.plan(
        store, ALL, who="ann", origin="test", can_run="embedded-1", check_first=True
    ).operation_id
    because = "at least once, because the embedded broker has no fencing and no read_committed"

    assert f"Sent {because}" in text_of(opened(path, operation=one))
    facts = dict(replay_wording.facts(replay.get(store, one)))
    assert facts["Delivery"] == because.capitalize()
