"""Retention: how long the store keeps what, and how fine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import duckdb

from producer_core.metrics.batch import KINDS

_HOUR, _DAY = 3600.0, 86400.0

_SETTLED = "state IN ('replayed', 'landed', 'purged') AND state_at < $before"

_FINISHED = "operations WHERE finished_at < $before"

_AUDITED = "audits WHERE coalesce(finished_at, started_at) < $before"


@dataclass(frozen=True)
class Retention:
    """Seconds that rows of each kind are kept; each is a setting of the store, by its name here.

    `keep_settled` is for dead letters that were replayed, that landed, or whose bytes were purged. Those that wait are
    kept until somebody decides, and archived ones until somebody restores or purges them. The audit is kept for good.
    `keep_ledger` is for the ledger of acknowledged sequences, where a producer keeps one in its store.
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
    """Whether a whole minute of seconds, or hour of minutes, is old enough."""
    return any(
        _exists(connection, f"FROM {table} WHERE resolution = $fine AND window_start < $before", fine, before)
        for table in KINDS
        for fine, _, before in _steps(keep, now)
    )


def rollup(connection: duckdb.DuckDBPyConnection, keep: Retention, now: float) -> int:
    """Replace old fine rows by their sums, within the caller's transaction; the fine rows replaced."""
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
    """Whether anything is older than it is kept."""
    return any(_exists(connection, f"FROM {what}", None, before) for what, before in _old(keep, now))


def prune(connection: duckdb.DuckDBPyConnection, keep: Retention, now: float) -> int:
    """Delete what is older than it is kept, within the caller's transaction; the rows deleted."""
    for table in ("dead_letter_bodies", "letter_events"):
        connection.execute(
            f"DELETE FROM {table} WHERE message_id IN (SELECT message_id FROM dead_letters WHERE {_SETTLED})",
            {"before": now - keep.keep_settled},
        )
    return sum(_changed(connection, f"DELETE FROM {what}", None, before) for what, before in _old(keep, now))


def _steps(keep: Retention, now: float) -> tuple[tuple[int, int, int], ...]:
    """(fine resolution, coarse resolution, windows before this start), cut at whole coarse windows."""
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


def _old(keep: Retention, now: float) -> list[tuple[str, float]]:
    hours = now - keep.keep_hours
    return [
        *((f"{table} WHERE window_start < $before", hours) for table in KINDS),
        ("notices WHERE noticed_at < $before", hours),
        ("alerts WHERE state = 'resolved' AND changed_at < $before", hours),
        ("silences WHERE until < $before", hours),
        (f"operation_records WHERE operation_id IN (SELECT operation_id FROM {_FINISHED})", hours),
        (_FINISHED, hours),
        ("producers WHERE seen_at < $before", hours),
        (f"dead_letters WHERE {_SETTLED}", now - keep.keep_settled),
        ("ledger WHERE written_at < $before", now - keep.keep_ledger),
        ("ledger_given_up WHERE given_up_at < $before", now - keep.keep_ledger),
        ("pipeline_jobs WHERE seen_at < $before", hours),
        (f"audit_findings WHERE audit_id IN (SELECT audit_id FROM {_AUDITED})", hours),
        (_AUDITED, hours),
    ]


def _exists(connection: duckdb.DuckDBPyConnection, tail: str, fine: int | None, before: float) -> bool:
    return connection.execute(f"SELECT 1 {tail} LIMIT 1", _given(fine, before)).fetchone() is not None


def _changed(connection: duckdb.DuckDBPyConnection, statement: str, fine: int | None, before: float) -> int:
    row = connection.execute(statement, _given(fine, before)).fetchone()
    return int(row[0]) if row else 0


def _given(fine: int | None, before: float) -> dict[str, float]:
    return {"before": before} if fine is None else {"fine": fine, "before": before}
