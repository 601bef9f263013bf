"""Test the data of the dead letters page on a real store."""

from __future__ import annotations

import pytest

from producer_core.dashboard import actions, queries
from producer_core.dashboard.queries import dead_letter_list as dead_letter_queries
from producer_core.dashboard.queries.dead_letter_list import Neighbors, neighbors
from producer_core.dashboard.wording import dead_letters as dead_letter_wording
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.kafka.classify import fingerprint
from producer_core.store import Batch, ProducerRow
from tests.fixtures.dead_letter_pages import NOW, dead_letter


def test_new_dead_letters_do_not_shift_the_following_pages(store, monkeypatch):
    monkeypatch.setattr(dead_letter_queries, "LISTED", 2)
    DeadLetters(store).add([dead_letter(number) for number in range(5)])
    first = queries.dead_letters(store, DeadLetterFilter())
    DeadLetters(store).add([dead_letter(9)])
    second = queries.dead_letters(store, DeadLetterFilter(), after=first.next)
    assert [one.message_id for one in first.dead_letters] == ["m-4", "m-3"]
    assert [one.message_id for one in second.dead_letters] == ["m-2", "m-1"]
    assert (first.total, second.total) == (5, 6)
    assert queries.scope(store, first.seen).count == 5  # m-9 arrived after the page was read
    assert queries.scope(store, second.seen).count == 6


def test_all_groups_stay_listed_when_one_is_selected(store):
    rare = fingerprint("MSG_SIZE_TOO_LARGE", "too large")
    DeadLetters(store).add(
        [
            dead_letter(1),
            dead_letter(2),
            dead_letter(3, code="MSG_SIZE_TOO_LARGE", error_text="too large", fingerprint=rare),
        ]
    )
    found = dead_letter_queries.causes(store, DeadLetterFilter(group=rare))
    assert [group.count for group in found.groups] == [2, 1]
    assert (found.one.fingerprint, found.total, found.others) == (rare, 3, 0)
    assert found.groups[0].advice and sum(found.groups[0].trend.counts) == 2


def test_a_selected_group_is_listed_even_if_it_is_small(store, monkeypatch):
    monkeypatch.setattr(dead_letter_queries, "GROUPS", 1)
    DeadLetters(store).add([dead_letter(1), dead_letter(2), dead_letter(3, fingerprint="rare")])
    found = dead_letter_queries.causes(store, DeadLetterFilter(group="rare"))
    assert (len(found.groups), found.one.fingerprint, found.others) == (1, "rare", 1)


def test_all_counts_of_a_page_come_from_one_read(store):
    DeadLetters(store).add([dead_letter(1), dead_letter(2)])
    found = dead_letter_queries.snapshot(store, DeadLetterFilter(), NOW)
    assert found.page.total == found.causes.total == found.waiting.load.dead_letters == 2


@pytest.mark.slow
def test_a_body_search_resumes_and_actions_apply_to_its_result(store, monkeypatch):
    monkeypatch.setattr(dead_letter_queries, "SEARCHED", 1)
    DeadLetters(store).add(
        [dead_letter(number, value=b"needle" if number % 2 else b"hay") for number in range(6)]
    )
    where = DeadLetterFilter(body="NEEDLE")
    search = dead_letter_queries.search_bodies(store, where, NOW)
    assert (search.ids, search.complete, search.frozen) == (("m-5",), False, None)
    while not search.complete:
        search = dead_letter_queries.search_bodies(store, where, NOW, search)
    assert search.ids == ("m-5", "m-3", "m-1")
    assert (search.looked_at, search.of) == (6, 6)
    page = dead_letter_queries.found_page(store, search)
    assert queries.scope(store, page.seen).count == page.total == 3
    actions.clear(store, search.frozen)
    assert dead_letter_queries.found_page(store, search).total == 0


def test_an_empty_search_result_selects_nothing(store):
    DeadLetters(store).add([dead_letter(1)])
    search = dead_letter_queries.search_bodies(store, DeadLetterFilter(body="absent"), NOW)
    page = dead_letter_queries.found_page(store, search)
    assert (search.complete, search.frozen, page.total) == (True, None, 0)
    assert queries.scope(store, page.seen).count == 0


def test_the_counts_include_the_limits_of_the_store(store):
    DeadLetters(store).add([dead_letter(1), dead_letter(2), dead_letter(3)])
    actions.clear(store, DeadLetterFilter(ids=("m-3",)))
    found = dead_letter_queries.waiting(store, NOW)
    assert (found.load.dead_letters, found.archived, found.bounds.dead_letters) == (2, 1, 10_000)


def test_a_stamp_changes_with_the_state_and_is_none_for_an_unknown_id(store):
    DeadLetters(store).add([dead_letter(1)])
    before = dead_letter_queries.change_stamp(store, "m-1")
    actions.clear(store, DeadLetterFilter())
    assert before != dead_letter_queries.change_stamp(store, "m-1")
    assert dead_letter_queries.change_stamp(store, "m-1")[0] == "archived"
    assert dead_letter_queries.change_stamp(store, "nobody") is None


def test_a_dead_letter_shows_its_producer_name_and_acceptance_time(path, store, monkeypatch):
    row = ProducerRow(
        "p", "c", "checkout-1", "shop-3", 7, "0.1", NOW, NOW, None, True, None, 0, 0, 0, 1, 1, None, True,
        "at_least_once", "{}",
    )  # fmt: skip
    store.append(Batch("p", 0, producer=row))
    DeadLetters(store).add(
        [dead_letter(1, accepted_at=NOW - 0.2, failed_at=NOW), dead_letter(2, producer_id="gone")]
    )
    assert (
        dead_letter_queries.producer_of(store, queries.dead_letter(store, "m-1")) == "checkout-1 (process 7)"
    )
    assert dead_letter_queries.producer_of(store, queries.dead_letter(store, "m-2")) == ""
    assert dead_letter_wording.accepted(0.2) == "accepted less than a second earlier"
    assert dead_letter_wording.accepted(5.0) == "accepted 5 s earlier"


def test_an_action_applies_to_the_selection_or_to_all_matches(store):
    DeadLetters(store).add(
        [dead_letter(1), dead_letter(2, verdict="possibly_persisted"), dead_letter(3, topic="orders")]
    )
    where = DeadLetterFilter(topic="payments")
    every = queries.scope(store, actions.selected(where, ()))
    one = queries.scope(store, actions.selected(where, ("m-1",)))
    assert (every.count, every.safe) == (2, False)
    assert (one.count, one.safe) == (1, True)
    assert queries.choices(store, "dead") == (("orders", "payments"), ("POLICY_VIOLATION",))


def test_the_filter_options_keep_their_order_while_dead_letters_arrive(store):
    DeadLetters(store).add([dead_letter(1), dead_letter(2), dead_letter(3, topic="late")])
    before = queries.choices(store, "dead")
    DeadLetters(store).add([dead_letter(number, topic="late") for number in range(10, 15)])
    assert queries.choices(store, "dead") == before == (("late", "payments"), ("POLICY_VIOLATION",))


def test_the_neighbors_follow_the_list_and_a_record_that_left_it_keeps_its_place():
    listed = [dead_letter(number) for number in (5, 4, 2, 1)]

    assert neighbors(listed, "m-5", listed[0].failed_at) == Neighbors(None, "m-4", 1)
    assert neighbors(listed, "m-2", listed[2].failed_at) == Neighbors("m-4", "m-1", 3)
    assert neighbors(listed, "m-3", dead_letter(3).failed_at) == Neighbors("m-4", "m-2", 0)
    assert neighbors([], "m-3", 1.0) == Neighbors()
