"""The description of a store: its row counts, its size and its time range."""

from __future__ import annotations

from producer_core.dlq import DeadLetters
from producer_core.store.inspect import describe
from producer_core.store.migrate import version_of
from producer_core.store.retention import Retention
from tests.fixtures.dead_letters import dead_letter
from tests.fixtures.store_batches import batch


def described(store):
    with store.borrow() as connection:
        return describe(connection, store.path, Retention()), version_of(connection)


def test_a_new_store_has_no_rows_and_no_time_range(store):
    found, version = described(store)

    assert {name for name, count in found.rows.items() if count} == {"required_features", "store_generation"}
    assert {"statistics", "dead_letters", "operations"} <= found.rows.keys()
    assert "schema_migrations" not in found.rows
    assert (found.oldest, found.newest, found.schema_version) == (None, None, version)
    assert (found.path, found.bytes) == (store.path, store.path.stat().st_size)


def test_rows_are_counted_by_table_and_the_range_is_that_of_the_statistics(store):
    for number in (120, 60, 180):
        store.append(batch("p", number))
    DeadLetters(store).add([dead_letter(1), dead_letter(2)])

    found, _ = described(store)

    assert (found.rows["statistics"], found.rows["dead_letters"]) == (3, 2)
    assert (found.oldest, found.newest) == (60, 180)
