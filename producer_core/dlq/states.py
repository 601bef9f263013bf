"""Change the state of dead letters; only the transitions below are allowed.

dead ⇄ archived → purged
dead → replaying → replayed | landed | dead
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from producer_core.dlq import replay_waves
from producer_core.dlq.revisions.revision import NOT_REPLACED
from producer_core.events import State
from producer_core.store import dead_letter_counts

if TYPE_CHECKING:
    import duckdb

Condition = tuple[str, Sequence[Any]]
_CHANGED = "rowid IN (SELECT place FROM changed_places)"

ALLOWED: frozenset[tuple[State, State]] = frozenset(
    {
        ("dead", "archived"),
        ("archived", "dead"),
        ("archived", "purged"),
        ("dead", "replaying"),
        ("replaying", "replayed"),
        ("replaying", "landed"),
        ("replaying", "dead"),
    }
)


def move(
    connection: duckdb.DuckDBPyConnection,
    where: Condition,
    before: State,
    after: State,
    *,
    now: float,
    **columns: Any,
) -> int:
    """Change the state of the matching dead letters from `before` to `after`. Return their number.

    Dead letters in another state stay unchanged. `columns` are set as well. Runs within the caller's transaction.
    """
    with _changing(connection, where, before, after) as number:
        _update(connection, {"state": after, "state_at": now, **columns})
    return number


def take(
    connection: duckdb.DuckDBPyConnection,
    where: Condition,
    before: State,
    after: State,
    *,
    now: float,
    **columns: Any,
) -> list[str]:
    """Change the state like `move`. Return the ids of the changed dead letters."""
    with _changing(connection, where, before, after):
        found = connection.execute(f"SELECT message_id FROM dead_letters WHERE {_CHANGED}").fetchall()
        _update(connection, {"state": after, "state_at": now, **columns})
    return [message_id for (message_id,) in found]


def name_cluster(connection: duckdb.DuckDBPyConnection, producer: str, cluster: str) -> None:
    """Set the cluster of a producer's dead letters that were recorded before it was known."""
    places = "SELECT rowid FROM dead_letters WHERE producer_id = ? AND cluster_id = ''"
    with dead_letter_counts.in_place(connection, places, [producer]):
        _update(connection, {"cluster_id": cluster})


def _changing(
    connection: duckdb.DuckDBPyConnection, where: Condition, before: State, after: State
) -> AbstractContextManager[int]:
    """Select the matching dead letters in the state `before` for a change in place."""
    if (before, after) not in ALLOWED:
        raise ValueError(f"a dead letter cannot go from {before} to {after}")
    replay_waves.begin_change(connection)
    condition, parameters = where
    if (before, after) == ("archived", "dead"):
        condition = f"({condition}) AND {NOT_REPLACED}"
    places = f"SELECT rowid FROM dead_letters WHERE state = ? AND ({condition})"
    return dead_letter_counts.in_place(connection, places, [before, *parameters])


def _update(connection: duckdb.DuckDBPyConnection, columns: Mapping[str, Any]) -> None:
    """Set these columns of the selected dead letters."""
    sets = ", ".join(f"{name} = ?" for name in columns)
    connection.execute(f"UPDATE dead_letters SET {sets} WHERE {_CHANGED}", list(columns.values()))
