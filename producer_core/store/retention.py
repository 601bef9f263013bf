"""Roll up old statistics to coarser windows, and delete rows after their retention time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import duckdb

from producer_core.metrics.batch import KINDS
from producer_core.store import expired_revisions, expired_totals

_HOUR, _DAY = 3600.0, 86400.0

_SETTLED = "state IN ('replayed', 'landed', 'purged') AND state_at < $before"

_FINISHED = "operations WHERE finished_at < $before"

_AUDITED = "audits WHERE coalesce(finished_at, started_at) < $before"


@dataclass(frozen=True)
class Retention:
    """The retention time of each kind of row, in seconds. Each is a setting of the store with the same name.

    `keep_settled` applies to dead letters that were replayed, that landed, or whose bytes were purged. Pending dead letters
    are kept until an operator acts on them, archived ones until they are restored or purged. The audit log is kept
    without limit. `keep_ledger` applies to the ledger of acknowledged sequences, if a producer keeps one in its store.
    """

    keep_seconds: float = 2 * _HOUR
    keep_minutes: float = 3 * _DAY
    keep_hours: float = 90 * _DAY
    keep_ledger: float = 7 * _DAY
    keep_settled: float = 30 * _DAY

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Retention:
        return cls(**{f.name: float(settings[f.name]) for f in fields(cls) if f.name in settings})


def rollup_due(connection: duckdb.DuckDBPyConnection, keep: Retention, now: float) -> bool:
    """Whether a whole minute of seconds, or a whole hour of minutes, is old enough to roll up."""
    return any(
        _exists(connection, f"FROM {table} WHERE resolution = $fine AND window_start < $before", fine, before)
        for table in KINDS
        for fine, _, before in _steps(keep, now)
    )


def rollup(connection: duckdb.DuckDBPyConnection, keep: Retention, now: float) -> int:
    """Replace old fine rows with their sums, within the caller's transaction; return the number of replaced rows."""
    replaced = 0
    for table in KINDS:
        for fine, coarse, before in _steps(keep, now):
            connection.execute(
                f"INSERT INTO {table} BY NAME {_summed(table)}",
                {"fine": fine, "coarse": coarse, "before": before},
            )
            replaced += _changed(
                connection,
                f"DELETE FROM {table} WHERE resolution = $fine AND window_start < $before",
                fine,
                before,
            )
    return replaced


def prune_due(connection: duckdb.DuckDBPyConnection, keep: Retention, now: float) -> bool:
    """Whether any row is past its retention time."""
    return any(_exists(connection, f"FROM {rows}", None, before) for rows, before in _expired(keep, now))


def prune(connection: duckdb.DuckDBPyConnection, keep: Retention, now: float) -> int:
    """Delete rows past their retention time, within the caller's transaction; return their number.

    Statistics are added to the store's totals before they are deleted.
    """
    hours = now - keep.keep_hours
    for table in KINDS:
        if _exists(connection, f"FROM {table} WHERE window_start < $before", None, hours):
            expired_totals.add(connection, table, hours)
    settled = f"SELECT message_id FROM dead_letters WHERE {_SETTLED}"
    before = {"before": now - keep.keep_settled}
    expired_revisions.forget(connection, settled, before)
    for table in ("dead_letter_bodies", "letter_events"):
        connection.execute(f"DELETE FROM {table} WHERE message_id IN ({settled})", before)
    deleted = sum(
        _changed(connection, f"DELETE FROM {rows}", None, before) for rows, before in _expired(keep, now)
    )
    expired_revisions.forget_orphans(connection)
    return deleted


def _steps(keep: Retention, now: float) -> tuple[tuple[int, int, int], ...]:
    """Return (fine resolution, coarse resolution, end of the windows to roll up), aligned to coarse windows."""
    return (
        (1, 60, int((now - keep.keep_seconds) // 60 * 60)),
        (60, 3600, int((now - keep.keep_minutes) // 3600 * 3600)),
    )


def _summed(table: str) -> str:
    kind = KINDS[table]
    keys = ", ".join(kind.key_columns)
    sums = [f"sum({name}) AS {name}" for name in kind.sums] + [
        f"max({name}) AS {name}" for name in kind.highest
    ]
    return (
        f"SELECT $coarse AS resolution, window_start // $coarse * $coarse AS window_start, {keys}, {', '.join(sums)} "
        f"FROM {table} WHERE resolution = $fine AND window_start < $before "
        f"GROUP BY window_start // $coarse * $coarse, {keys}"
    )


def _expired(keep: Retention, now: float) -> list[tuple[str, float]]:
    hours = now - keep.keep_hours
    return [
        *((f"{table} WHERE window_start < $before", hours) for table in KINDS),
        ("notices WHERE noticed_at < $before", hours),
        ("alerts WHERE state = 'resolved' AND changed_at < $before", hours),
        ("silences WHERE until < $before", hours),
        ("edit_drafts WHERE saved_at < $before", hours),
        (f"operation_records WHERE operation_id IN (SELECT operation_id FROM {_FINISHED})", hours),
        (_FINISHED, hours),
        ("producers WHERE seen_at < $before", hours),
        ("compression_samples WHERE measured_at < $before", hours),
        (f"dead_letters WHERE {_SETTLED}", now - keep.keep_settled),
        ("ledger WHERE written_at < $before", now - keep.keep_ledger),
        ("ledger_given_up WHERE given_up_at < $before", now - keep.keep_ledger),
        ("pipeline_jobs WHERE seen_at < $before", hours),
        (f"audit_findings WHERE audit_id IN (SELECT audit_id FROM {_AUDITED})", hours),
        (_AUDITED, hours),
    ]


def _exists(connection: duckdb.DuckDBPyConnection, tail: str, fine: int | None, before: float) -> bool:
    return connection.execute(f"SELECT 1 {tail} LIMIT 1", _params(fine, before)).fetchone() is not None


def _changed(connection: duckdb.DuckDBPyConnection, statement: str, fine: int | None, before: float) -> int:
    row = connection.execute(statement, _params(fine, before)).fetchone()
    return int(row[0]) if row else 0


def _params(fine: int | None, before: float) -> dict[str, float]:
    return {"before": before} if fine is None else {"fine": fine, "before": before}
