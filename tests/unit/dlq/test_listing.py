"""Listings: their order, their pages, and the columns they leave out."""

from __future__ import annotations

from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.files.selection import freeze
from producer_core.dlq.topics import publisher
from producer_core.store import Store
from tests.fixtures.dead_letters import EVERYTHING, NOW, dead_letter


def test_a_listing_has_the_latest_failure_first_and_no_bodies(dead_letters):
    dead_letters.add([dead_letter(1), dead_letter(3, headers=(("a", b"1"),)), dead_letter(2)])

    found = dead_letters.find(DeadLetterFilter())

    assert [one.message_id for one in found] == ["m-3", "m-2", "m-1"]
    assert {(one.value, one.headers, one.attempts) for one in found} == {(None, (), ())}
    assert [one.message_id for one in dead_letters.find(DeadLetterFilter(), limit=1, offset=1)] == ["m-2"]
    table = dead_letters.table(DeadLetterFilter(), limit=2)
    assert table["value_size"].to_pylist() == [7, 7] and table["attempts"].to_pylist() == [1, 1]


def test_messages_accepted_at_the_same_time_keep_their_order(tmp_path, monkeypatch):
    """Ids end with a number. In text order 10 precedes 9, so an old value of a key would be replayed last."""
    store = Store.open(tmp_path / "store.duckdb")
    dead_letters = DeadLetters(store, clock=lambda: NOW + 100)
    dead_letters.add([dead_letter(number, accepted_at=NOW, failed_at=NOW + 1) for number in (11, 9, 10, 8)])
    monkeypatch.setattr(publisher, "_LISTING_ROWS", 3)
    in_order = ["m-8", "m-9", "m-10", "m-11"]

    assert dead_letters.ids(EVERYTHING) == in_order
    assert [one.message_id for one in dead_letters.bodies(in_order[::-1])] == in_order
    with freeze(store, EVERYTHING, tmp_path) as exported:
        assert [one.message_id for slice_ in exported.slices() for one in slice_] == in_order
    published = publisher._slices(store, EVERYTHING, NOW)
    assert [one.message_id for slice_ in published for one in slice_] == in_order
