"""Open waves: a replay claims a range of its records with one row.

The rows of these records and of their dead letters do not say that they are claimed, because the replay settles them about
a second later and would write each row twice. Every other change of dead letters begins with `begin_change`, which
writes such claims to the rows, in the same transaction. After that they are claimed like single records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from producer_core.store import dead_letter_counts, required_features
from producer_core.store.queries import run

if TYPE_CHECKING:
    import duckdb


NOT_IN_WAVE = """message_id NOT IN (
    SELECT records.message_id FROM operation_records AS records JOIN replay_waves AS waves
         ON records.operation_id = waves.operation_id AND records.ord BETWEEN waves.first_ord AND waves.last_ord
    WHERE records.state = 'pending')"""
"""Selects dead letters that no open wave has claimed."""


class Wave(NamedTuple):
    """An open wave: the first and the last number of its records in the order of the operation."""

    first: int
    last: int


def begin_change(connection: duckdb.DuckDBPyConnection, *, replay: str | None = None) -> None:
    """Begin to change dead letters: write the claims of all open waves to their rows, except those of `replay`.

    Raise StoreTooNew if the store requires a feature that this version lacks.
    """
    required_features.check(connection)
    write_all_claims(connection, replay=replay)


def begin_change_of(connection: duckdb.DuckDBPyConnection, operation_id: str) -> None:
    """Begin to change the records of one replay, as `begin_change` does for dead letters: write its claims to the rows."""
    required_features.check(connection)
    write_claims(connection, operation_id)


def write_all_claims(connection: duckdb.DuckDBPyConnection, *, replay: str | None = None) -> None:
    """Write the claims of all open waves to their rows, except those of `replay`."""
    operations = connection.execute(
        "SELECT DISTINCT operation_id FROM replay_waves WHERE operation_id IS DISTINCT FROM ?", [replay]
    ).fetchall()
    for (operation_id,) in operations:
        write_claims(connection, operation_id)


def write_claims(connection: duckdb.DuckDBPyConnection, operation_id: str) -> None:
    """Write the claims of this operation's open waves to their rows, and close the waves."""
    if not open_waves(connection, operation_id):
        return
    run(connection, "replay_wave_members", operation=operation_id)
    run(connection, "replay_wave_dead_letters")
    with dead_letter_counts.state_changed(
        connection, "SELECT dead_letter FROM wave_dead_letters", before="dead", after="replaying",
        in_place=True,
    ):  # fmt: skip
        run(connection, "replay_claim_wave_dead_letters", operation=operation_id)
    run(connection, "replay_claim_wave_records")
    connection.execute("DELETE FROM replay_waves WHERE operation_id = ?", [operation_id])


def open_waves(connection: duckdb.DuckDBPyConnection, operation_id: str) -> list[Wave]:
    """Return the open waves of an operation, in its order."""
    found = connection.execute(
        "SELECT first_ord, last_ord FROM replay_waves WHERE operation_id = ? ORDER BY first_ord",
        [operation_id],
    ).fetchall()
    return [Wave(*row) for row in found]


def first_after(connection: duckdb.DuckDBPyConnection, operation_id: str) -> int:
    """Return the number after the operation's open waves, from which on its records can be claimed; 0 without a wave."""
    waves = open_waves(connection, operation_id)
    return waves[-1].last + 1 if waves else 0


def open_wave(connection: duckdb.DuckDBPyConnection, operation_id: str, wave: Wave, *, now: float) -> None:
    """Claim the pending records of a range with one row."""
    connection.execute("INSERT INTO replay_waves VALUES (?, ?, ?, ?)", [operation_id, *wave, now])


def settled_up_to(connection: duckdb.DuckDBPyConnection, operation_id: str, last: int) -> None:
    """Shorten or close the operation's waves after their records up to this number were settled."""
    connection.execute(
        "UPDATE replay_waves SET first_ord = ? WHERE operation_id = ? AND first_ord <= ?",
        [last + 1, operation_id, last],
    )
    connection.execute(
        "DELETE FROM replay_waves WHERE operation_id = ? AND first_ord > last_ord", [operation_id]
    )


def claimed_by_wave(connection: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> set[str]:
    """Return those of these dead letters that are in an open wave, although their state is still dead."""
    if not connection.execute("SELECT 1 FROM replay_waves LIMIT 1").fetchall():
        return set()
    return {row[0] for row in run(connection, "replay_wave_ids", ids=list(ids)).fetchall()}
