"""Letters found by their ids: the index and a read of the whole column give the same."""

from __future__ import annotations

import pytest

from producer_core.dlq import DeadLetters, lookup
from tests.fixtures.replays import dead_letter


@pytest.mark.parametrize("rows_an_id", [0, 10**9], ids=["by the index", "by a read of the whole column"])
@pytest.mark.parametrize("count", [1, 150, 2500])
def test_exactly_the_wanted_letters_are_found(store, monkeypatch, rows_an_id, count):
    monkeypatch.setattr(lookup, "_ROWS_AN_ID", rows_an_id)
    dead_letters = [dead_letter(number) for number in range(3000)]
    DeadLetters(store).add(dead_letters)
    wanted = dead_letters[100 : 100 + count]

    found = DeadLetters(store).bodies([one.message_id for one in wanted] + ["nobody-1", wanted[0].message_id])

    assert [(one.message_id, one.value, one.headers) for one in found] == [
        (one.message_id, one.value, one.headers) for one in wanted
    ]


def test_few_ids_are_found_by_the_index_and_many_of_a_small_table_by_reading_it(store):
    DeadLetters(store).add([dead_letter(number) for number in range(1000)])

    with store.borrow() as connection:
        assert not lookup.reads_whole(connection, "dead_letters", 1)
        assert lookup.reads_whole(connection, "dead_letters", 200)


def test_rows_of_the_same_transaction_are_found(store):
    dead = DeadLetters(store)
    with store.borrow(write=True):
        dead.add([dead_letter(number) for number in range(200)])
        assert len(dead.bodies([dead_letter(number).message_id for number in range(200)])) == 200
