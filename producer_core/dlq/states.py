"""Change the state of dead letters; only the transitions below are allowed.

dead ⇄ archived → purged
dead → replaying → replayed | landed | dead
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from producer_core.events import State

if TYPE_CHECKING:
    import duckdb

Condition = tuple[str, Sequence[Any]]

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
    sql, parameters = _update(where, before, after, now=now, columns=columns)
    row = connection.execute(sql, parameters).fetchone()
    return int(row[0]) if row else 0


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
    sql, parameters = _update(where, before, after, now=now, columns=columns)
    return [
        message_id
        for (message_id,) in connection.execute(f"{sql} RETURNING message_id", parameters).fetchall()
    ]


def _update(
    where: Condition, before: State, after: State, *, now: float, columns: Mapping[str, Any]
) -> tuple[str, list[Any]]:
    if (before, after) not in ALLOWED:
        raise ValueError(f"a dead letter cannot go from {before} to {after}")
    condition, parameters = where
    sets = {"state": after, "state_at": now, **columns}
    sql = (
        f"UPDATE dead_letters SET {', '.join(f'{name} = ?' for name in sets)} "
        f"WHERE state = ? AND ({condition})"
    )
    return sql, [*sets.values(), before, *parameters]
