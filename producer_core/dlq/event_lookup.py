"""Find the events of dead letters by message id, with queries for which DuckDB uses its index."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import duckdb

_IDS = 500
"""Ids of one query. DuckDB uses the index only if a query finds at most 2,048 rows; a publication has two events."""


class Event(NamedTuple):
    message_id: str
    happened_at: float
    what: str
    origin: str
    text: str | None


def find_events(
    connection: duckdb.DuckDBPyConnection, ids: Sequence[str], kinds: Collection[str]
) -> list[Event]:
    """Return the events of these kinds, the oldest first. The number of events per dead letter has no limit.

    The kinds are selected here, because DuckDB does not use the index if another condition is combined with the ids.
    """
    found: list[Event] = []
    for first in range(0, len(ids), _IDS):
        part = list(ids[first : first + _IDS])
        sql = f"SELECT {', '.join(Event._fields)} FROM letter_events WHERE message_id IN ({', '.join('?' * len(part))})"
        rows = connection.execute(sql, part).fetchall()
        found += [event for event in map(Event._make, rows) if event.what in kinds]
    return sorted(found, key=lambda event: event.happened_at)
