"""Archive, restore, purge and reveal dead letters, each as one audited transaction.

The transaction changes the states, adds an event for each dead letter (`letter_events`) and writes one audit row. Dead
letters that another operator has changed first stay unchanged, and the result counts them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from producer_core._internal.plural import plural
from producer_core.dlq import states
from producer_core.dlq.filter import DeadLetterFilter
from producer_core.dlq.revisions.revision import NOT_REPLACED
from producer_core.errors import ConfigError
from producer_core.roles.role_check import check_operator
from producer_core.store import expired_revisions

if TYPE_CHECKING:
    import duckdb

    from producer_core.store import Store

MIN_AGE = 86400.0
"""Default of the seconds for which a dead letter must have been archived before it may be purged."""

_ADD_EVENTS = """
INSERT INTO letter_events (message_id, happened_at, what, who, origin)
SELECT message_id, ?, ?, ?, ? FROM dead_letters WHERE state = ? AND state_at = ?"""

_ADD_REVEALED = """
INSERT INTO letter_events (message_id, happened_at, what, who, origin)
SELECT unnest(?::VARCHAR[]), ?, 'revealed', ?, ?"""

_REPLAYING = """
SELECT count(*) AS n, list_sort(list(DISTINCT operations.who)) AS who
FROM dead_letters AS stored LEFT JOIN operations USING (operation_id)
WHERE stored.message_id IN (SELECT message_id FROM dead_letters WHERE ({where}) AND state = 'replaying')"""

_PLANNED = """
SELECT operations.operation_id, operations.who, count(*) AS n
FROM operations JOIN operation_records AS records USING (operation_id)
JOIN dead_letters AS stored USING (message_id)
WHERE operations.state IN ('checking', 'ready', 'planned', 'running', 'paused') AND records.state = 'pending'
  AND stored.state = 'archived' AND stored.state_at = ?
GROUP BY ALL ORDER BY n DESC"""

_PURGED = "SELECT message_id FROM dead_letters WHERE state = 'purged' AND state_at = $now"

_UNCHANGED_STATES = {
    "dead": "already pending",
    "archived": "already archived",
    "replayed": "already replayed",
    "landed": "already on the topic",
    "purged": "already purged",
}


@dataclass(frozen=True)
class ArchiveResult:
    """The number of dead letters changed, with a sentence for the operator. `moment` identifies the change for an undo.

    `left` counts, by state, selected dead letters that stayed unchanged because another operator was first.
    """

    count: int
    text: str
    moment: float
    left: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Archive:
    """Applies one operator's changes to the dead letters of a store and audits them."""

    store: Store
    clock: Callable[[], float]
    who: str
    origin: str

    def archive(self, where: DeadLetterFilter) -> ArchiveResult:
        with self.store.borrow(write=True) as connection:
            now = self._unique_time(connection)
            self._check_role(now)
            count = states.move(connection, where.where(), "dead", "archived", now=now)
            self._add_events(connection, "archived", "archived", now)
            left, reasons = _unchanged(connection, where, "archived", now)
            planned = _rows(connection, _PLANNED, [now])
            sentences = [f"Archived {dead_letters(count)}.", *reasons, *map(_skipped_by_replay, planned)]
            return self._audited("archive", where, ArchiveResult(count, " ".join(sentences), now, left))

    def restore(self, where: DeadLetterFilter, *, moment: float | None = None) -> ArchiveResult:
        with self.store.borrow(write=True) as connection:
            condition, parameters = replace(where, state=None).where()
            if moment is not None:
                condition, parameters = f"{condition} AND state_at = ?", [*parameters, moment]
            now = self._unique_time(connection)
            self._check_role(now)
            count = states.move(connection, (condition, parameters), "archived", "dead", now=now)
            self._add_events(connection, "restored", "dead", now)
            left, reasons = (
                _unchanged(connection, where, "dead", now)
                if moment is None
                else _changed_since(connection, moment, count)
            )
            if not count and not left.get("purged"):
                reasons += _purged(connection, where, moment)
            reasons += _replaced(connection, where, moment)
            sentences = [f"Restored {dead_letters(count)}.", *reasons]
            return self._audited("restore", where, ArchiveResult(count, " ".join(sentences), now, left))

    def purge(self, where: DeadLetterFilter, *, confirmation: str, min_age: float) -> ArchiveResult:
        """Purge, or audit the refusal and raise ConfigError if the confirmation is wrong."""
        with self.store.borrow(write=True) as connection:
            now = self._unique_time(connection)
            self._check_role(now)
            condition = purgeable(where, now - min_age)
            phrase = purge_phrase(connection, condition)
            confirmed = confirmation.strip() == phrase
            if confirmed:
                result = self._purge(connection, condition, now, min_age)
            else:
                result = ArchiveResult(
                    0, f"Not confirmed: {confirmation.strip()!r} was typed instead of {phrase!r}.", now
                )
            self._audited("purge", where, result)
        if not confirmed:
            raise ConfigError(
                "The purge is permanent and was not confirmed. Nothing was purged.",
                fix=f"Type exactly: {phrase}",
            )
        return result

    def reveal(self, ids: Sequence[str], selection: Mapping[str, Any]) -> ArchiveResult:
        with self.store.borrow(write=True) as connection:
            now = self.clock()
            connection.execute(_ADD_REVEALED, [list(ids), now, self.who, self.origin])
            result = ArchiveResult(len(ids), f"{dead_letters(len(ids)).capitalize()} shown unmasked.", now)
            self._audit("reveal", selection, result)
        return result

    def _check_role(self, now: float) -> None:
        check_operator(self.store, who=self.who, origin=self.origin, now=now)

    def _purge(
        self, connection: duckdb.DuckDBPyConnection, condition: states.Condition, now: float, min_age: float
    ) -> ArchiveResult:
        count = states.move(
            connection,
            condition,
            "archived",
            "purged",
            now=now,
            key=None,
            key_mark=None,
            error_text="",
            source=None,
        )
        connection.execute(f"DELETE FROM dead_letter_bodies WHERE message_id IN ({_PURGED})", {"now": now})
        connection.execute(
            f"UPDATE operation_records SET text = NULL WHERE text IS NOT NULL AND message_id IN ({_PURGED})",
            {"now": now},
        )
        expired_revisions.forget(connection, _PURGED, {"now": now})
        self._add_events(connection, "purged", "purged", now)
        if not count:
            return ArchiveResult(
                0,
                f"Nothing was purged: no matching dead letter was archived more than {min_age / 3600:g} h ago.",
                now,
            )
        return ArchiveResult(
            count,
            f"Purged {dead_letters(count)} permanently. New records overwrite the freed space in the store file; "
            "`store compact` clears it now.",
            now,
        )

    def _audited(self, action: str, where: DeadLetterFilter, result: ArchiveResult) -> ArchiveResult:
        self._audit(action, where.to_query(), result)
        return result

    def _audit(self, action: str, selection: Mapping[str, Any], result: ArchiveResult) -> None:
        self.store.audit(
            who=self.who,
            origin=self.origin,
            action=action,
            selection=selection,
            count=result.count,
            outcome=result.text,
        )

    def _add_events(self, connection: duckdb.DuckDBPyConnection, what: str, state: str, now: float) -> None:
        """Add an event for each dead letter that this transaction moved; its state and state time identify it."""
        connection.execute(_ADD_EVENTS, [now, what, self.who, self.origin, state, now])

    def _unique_time(self, connection: duckdb.DuckDBPyConnection) -> float:
        """Return the current time, or the next later value without a change, so that each change has its own time."""
        now = self.clock()
        while _rows(connection, "SELECT 1 FROM dead_letters WHERE state_at = ? LIMIT 1", [now]):
            now = math.nextafter(now, math.inf)
        return now


def purgeable(where: DeadLetterFilter, before: float) -> states.Condition:
    """Return the condition for matching dead letters that were archived at or before that time."""
    condition, parameters = replace(where, state=None).where()
    return f"{condition} AND state_at <= ?", [*parameters, before]


def purge_phrase(connection: duckdb.DuckDBPyConnection, purgeable: states.Condition) -> str:
    """Return the text that confirms the purge. It contains the count, so that it fits only the selection shown."""
    condition, parameters = purgeable
    sql = f"SELECT count(*) FROM dead_letters WHERE state = 'archived' AND {condition}"
    return f"purge {_rows(connection, sql, parameters)[0][0]}"


def dead_letters(count: int) -> str:
    return plural(count, "dead letter")


def _unchanged(
    connection: duckdb.DuckDBPyConnection, where: DeadLetterFilter, state: str, now: float
) -> tuple[dict[str, int], list[str]]:
    """Return counts and sentences for selected dead letters that stayed unchanged: those in a replay, and any chosen by
    id."""
    condition, parameters = replace(where, state=None).where()
    (number, operators), *_ = _rows(connection, _REPLAYING.format(where=condition), parameters)
    left, reasons = {}, []
    if number:
        left["replaying"] = number
        by = f" by {', '.join(filter(None, operators))}" if any(operators) else ""
        reasons.append(
            f"{_are(number)} being replayed{by} and {'was' if number == 1 else 'were'} not changed."
        )
    if where.ids or where.message_id:
        others = (
            f"SELECT state, count(*) FROM dead_letters WHERE {condition} AND state <> 'replaying' "
            "AND NOT (state = ? AND state_at = ?) GROUP BY state ORDER BY state"
        )
        for name, count in _rows(connection, others, [*parameters, state, now]):
            left[name] = count
            reasons.append(f"{_are(count)} {_UNCHANGED_STATES[name]}.")
    return left, reasons


def _changed_since(
    connection: duckdb.DuckDBPyConnection, moment: float, count: int
) -> tuple[dict[str, int], list[str]]:
    """Return count and sentence for the dead letters archived at `moment` that have changed since."""
    sql = "SELECT count(*) FROM letter_events WHERE what = 'archived' AND happened_at = ?"
    changed = _rows(connection, sql, [moment])[0][0] - count
    if changed <= 0:
        return {}, []
    return {"changed": changed}, [
        "1 has changed since it was archived and was not restored."
        if changed == 1
        else f"{changed:,} have changed since they were archived and were not restored."
    ]


def _purged(
    connection: duckdb.DuckDBPyConnection, where: DeadLetterFilter, moment: float | None
) -> list[str]:
    """Return a sentence for the selected dead letters that a purge deleted, if there are any."""
    condition, parameters = replace(where, state="purged").where()
    if moment is not None:
        archived = "SELECT message_id FROM letter_events WHERE what = 'archived' AND happened_at = ?"
        condition, parameters = f"{condition} AND message_id IN ({archived})", [*parameters, moment]
    sql = f"SELECT count(*) FROM dead_letters WHERE {condition}"
    number = _rows(connection, sql, parameters)[0][0]
    were = plural(number, "matching dead letter was", "matching dead letters were")
    return [f"{were} purged and cannot be restored."] if number else []


def _replaced(
    connection: duckdb.DuckDBPyConnection, where: DeadLetterFilter, moment: float | None
) -> list[str]:
    """Return a sentence for the selected dead letters that stay archived because their edit replaces them."""
    condition, parameters = replace(where, state="archived").where()
    if moment is not None:
        condition, parameters = f"{condition} AND state_at = ?", [*parameters, moment]
    sql = f"SELECT count(*) FROM dead_letters WHERE {condition} AND NOT ({NOT_REPLACED})"
    number = _rows(connection, sql, parameters)[0][0]
    are = plural(number, "is", "are")
    edits = "its edit" if number == 1 else "their edits"
    return [f"{are} replaced by {edits}; undo {edits} instead."] if number else []


def _skipped_by_replay(row: Sequence[Any]) -> str:
    operation_id, who, number = row
    return f"Replay {operation_id} by {who} skips {plural(number, 'archived dead letter')}."


def _are(number: int) -> str:
    return plural(number, "is", "are")


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[Any]) -> list[Any]:
    return list(connection.execute(sql, parameters).fetchall())
