"""Find the events of dead letters: with the index, and all of them."""

from __future__ import annotations

import pytest

from producer_core.dlq import DeadLetters
from producer_core.dlq.event_lookup import find_events
from producer_core.dlq.topics.slice_publisher import PublicationEvents
from tests.fixtures.replays import dead_letter

FILL = """
INSERT INTO letter_events (message_id, happened_at, what, who, origin, text)
SELECT 'other-' || number, number, what, 'p', 'producer', 'to orders-dlt'
FROM range(100000) AS rows(number), (VALUES ('publishing'), ('published')) AS kinds(what)"""


class Plans:
    """A connection that collects the plan of each query as it ran."""

    def __init__(self, connection):
        self._connection = connection
        self.plans = []

    def execute(self, sql, values=()):
        rows = self._connection.execute(f"EXPLAIN ANALYZE {sql}", values).fetchall()
        self.plans.append(rows[0][1])
        return self._connection.execute(sql, values)


def add_event(store, what, message_id, at, text="to orders-dlt"):
    PublicationEvents(store, who="p", origin="producer", clock=lambda: at).add(what, {message_id: text})


@pytest.mark.parametrize("count", [1, 1000])
@pytest.mark.parametrize("write", [False, True])
def test_events_are_found_by_the_index(store, count, write):
    """Regression: each slice of a publication scanned all events of the store, once within a transaction."""
    with store.borrow(write=True) as connection:
        connection.execute(FILL)
    with store.borrow(write=write) as connection:
        plans = Plans(connection)
        found = find_events(plans, [f"other-{number}" for number in range(count)], ("published",))
    assert [event.message_id for event in found] == [f"other-{number}" for number in range(count)]
    assert plans.plans
    for plan in plans.plans:
        assert "Index Scan" in plan and "Sequential Scan" not in plan


def test_a_dead_letter_with_many_events_has_all_of_them(store):
    """Other lookups by id expect at most ten rows."""
    for number in range(15):
        add_event(store, "revealed", "a", float(number))
    add_event(store, "published", "a", 15.0, "at orders-dlt[0]@1")
    add_event(store, "published", "b", 3.0)
    with store.borrow() as connection:
        found = find_events(connection, ["a", "unknown"], ("revealed", "published"))
    assert [event.happened_at for event in found] == [float(number) for number in range(16)]
    assert (found[-1].what, found[-1].text) == ("published", "at orders-dlt[0]@1")


def test_no_ids_have_no_events(store):
    with store.borrow() as connection:
        assert find_events(connection, [], ("published",)) == []


def test_a_publication_revokes_a_verdict_regardless_of_the_number_of_events(store):
    dead = dead_letter(1)
    DeadLetters(store).add([dead])
    for number in range(15):
        add_event(store, "revealed", dead.message_id, float(number))
    add_event(store, "published", dead.message_id, 20.0)
    DeadLetters(store).add([dead_letter(1, failed_at=5000.0)])
    assert DeadLetters(store).bodies([dead.message_id])[0].verdict == "possibly_persisted"
