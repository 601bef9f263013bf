"""Find dead letters by id: index lookups and a scan of the column give the same result."""

from __future__ import annotations

import pytest

from producer_core.dlq import DeadLetters, lookup
from tests.fixtures.replays import dead_letter


@pytest.mark.slow
@pytest.mark.parametrize("rows_per_id", [0, 10**9], ids=["index", "scan"])
@pytest.mark.parametrize("count", [1, 150, 2500])
def test_exactly_the_requested_dead_letters_are_found(store, monkeypatch, rows_per_id, count):
    monkeypatch.setattr(lookup, "_ROWS_PER_ID", rows_per_id)
    dead_letters = [dead_letter(number) for number in range(3000)]
    DeadLetters(store).add(dead_letters)
    requested = dead_letters[100 : 100 + count]

    found = DeadLetters(store).bodies(
        [one.message_id for one in requested] + ["unknown", requested[0].message_id]
    )

    assert [(one.message_id, one.value, one.headers) for one in found] == [
        (one.message_id, one.value, one.headers) for one in requested
    ]


def test_few_ids_use_the_index_and_many_ids_of_a_small_table_a_scan(store):
    DeadLetters(store).add([dead_letter(number) for number in range(1000)])

    with store.borrow() as connection:
        assert not lookup.prefers_full_scan(connection, "dead_letters", 1)
        assert lookup.prefers_full_scan(connection, "dead_letters", 200)


def test_rows_of_the_same_transaction_are_found(store):
    dead = DeadLetters(store)
    with store.borrow(write=True):
        dead.add([dead_letter(number) for number in range(200)])
        assert len(dead.bodies([dead_letter(number).message_id for number in range(200)])) == 200
