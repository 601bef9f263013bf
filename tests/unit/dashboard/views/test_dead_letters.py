"""Test the dead letters page."""

from __future__ import annotations

import time

import pytest

from producer_core.dashboard import actions, queries
from producer_core.dashboard.queries import dead_letter_list as dead_letter_queries
from producer_core.dashboard.views import dead_letters, reads
from producer_core.dlq import DeadLetterFilter, DeadLetters
from tests.fixtures.dead_letter_pages import add_runner, dead_letter, page_of
from tests.fixtures.overview import fill
from tests.fixtures.pages import html_of, opened, text_of

NOW = 0.0


@pytest.mark.slow
def test_an_empty_store_shows_that_nothing_is_pending(path, store, monkeypatch):
    page = page_of(path, monkeypatch)
    assert (
        "No matching dead letters. Messages that cannot be delivered appear here within seconds."
        in html_of(page)
    )
    assert "0 dead letters pending" in html_of(page)


@pytest.mark.slow
def test_the_details_of_a_cause_count_its_dead_letters(path, store):
    others = [dead_letter(number, code="_TIMED_OUT", fingerprint="other") for number in (2, 3)]
    DeadLetters(store).add([dead_letter(1), *others])
    groups = DeadLetters(store).groups(DeadLetterFilter())

    details = [dead_letters._group_row(group, selected=True).cells[2][-1] for group in groups]

    assert {text.split(":")[0] for text in details} == {"1 dead letter", "2 dead letters"}


@pytest.mark.slow
def test_a_manual_selection_ignores_later_filters(path, store, monkeypatch):
    add_runner(store)
    DeadLetters(store).add([dead_letter(1), dead_letter(2, topic="orders")])
    page = page_of(path, monkeypatch, selected=("m-1",), topic="orders")
    assert "1 selected, 1 on another page." in html_of(page)
    page.button(key="clear").click().run()
    assert [one.message_id for one in DeadLetters(store).find(DeadLetterFilter())] == ["m-2"]


@pytest.mark.slow
def test_archived_dead_letters_are_listed_and_restored(path, store, monkeypatch):
    DeadLetters(store).add([dead_letter(1), dead_letter(2)])
    actions.clear(store, DeadLetterFilter(ids=("m-1",)))
    page = page_of(path, monkeypatch)
    page.button(key="dead_letters_archived").click().run()
    assert page.query_params["state"] in ("archived", ["archived"])
    next(one for one in page.button if str(one.key).startswith("restore")).click().run()
    assert DeadLetters(store).count(DeadLetterFilter()) == 2


@pytest.mark.slow
def test_the_list_pages_forward_and_back(path, store, monkeypatch):
    monkeypatch.setattr(dead_letter_queries, "LISTED", 2)
    DeadLetters(store).add([dead_letter(number) for number in range(5)])
    page = page_of(path, monkeypatch)
    page.button(key="dead_letters_older").click().run()
    page.button(key="dead_letters_older").click().run()
    assert page.button(key="dead_letters_older").disabled
    page.button(key="dead_letters_newer").click().run()
    assert "after" in page.query_params
    page.button(key="dead_letters_newest").click().run()
    assert "after" not in page.query_params


@pytest.mark.slow
def test_without_a_producer_replay_is_disabled_with_a_reason(path, store, monkeypatch):
    fill(store, seen_at=NOW - 100)
    DeadLetters(store).add([dead_letter(1)])
    page = opened("dead_letters", path, monkeypatch)
    assert page.button(key="replay").disabled
    assert "This dead letter cannot be replayed now." in text_of(page)


@pytest.mark.slow
def test_a_planned_replay_keeps_its_size_while_dead_letters_arrive(path, store, monkeypatch):
    fill(store, seen_at=time.time() + 60)
    DeadLetters(store).add([dead_letter(1, verdict="possibly_persisted")])
    page = opened("dead_letters", path, monkeypatch)
    page.button(key="replay").click().run()
    assert page.button(key="replay_confirm").label == "Replay 1 now"
    DeadLetters(store).add([dead_letter(2)])
    (operation,) = queries.operations(store)
    checked = '{"topics": [], "at": 0}'
    store.execute(
        "replay_checked", operation=operation.operation_id, checked=checked, now=time.time(), message=""
    )
    reads.clear()
    page.run()
    assert page.button(key="replay").label == "Replay 2 …"
    assert page.button(key="replay_confirm").label == "Replay 1 now"
    page.button(key="replay_confirm").click().run()
    assert [operation.total for operation in queries.operations(store)] == [1]
