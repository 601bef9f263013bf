"""The clearing of dead letters: put aside, brought back, deleted for good; each act with its trace.

An act is one transaction: the dead letters' states, a line in the life of each (`letter_events`), and one row of the
audit. Whoever was first wins: what somebody else has changed meanwhile stays as it is, and the result says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from producer_core.dlq import states
from producer_core.dlq.filter import DeadLetterFilter
from producer_core.errors import ConfigError

if TYPE_CHECKING:
    import duckdb

    from producer_core.store import Store

MIN_AGE = 86400.0
"""Seconds a dead letter must have been archived before it may be purged, unless somebody says otherwise."""

_TRACED = """
INSERT INTO letter_events (message_id, happened_at, what, who, origin)
SELECT message_id, ?, ?, ?, ? FROM dead_letters WHERE state = ? AND state_at = ?"""

_REVEALED = """
INSERT INTO letter_events (message_id, happened_at, what, who, origin)
SELECT unnest(?::VARCHAR[]), ?, 'revealed', ?, ?"""

_REPLAYING = """
SELECT count(*) AS n, list_sort(list(DISTINCT operations.who)) AS who
FROM dead_letters AS letters LEFT JOIN operations USING (operation_id)
WHERE letters.message_id IN (SELECT message_id FROM dead_letters WHERE ({where}) AND state = 'replaying')"""

_PLANNED = """
SELECT operations.operation_id, operations.who, count(*) AS n
FROM operations JOIN operation_records AS records USING (operation_id)
JOIN dead_letters AS letters USING (message_id)
WHERE operations.state IN ('checking', 'ready', 'planned', 'running', 'paused') AND records.state = 'pending'
  AND letters.state = 'archived' AND letters.state_at = ?
GROUP BY ALL ORDER BY n DESC"""

_PURGED = "SELECT message_id FROM dead_letters WHERE state = 'purged' AND state_at = ?"

_STAYED = {
    "dead": "waiting already",
    "archived": "archived already",
    "replayed": "replayed already",
    "landed": "found on the topic already",
    "purged": "purged already",
}


@dataclass(frozen=True)
class ArchiveResult:
    """How many dead letters an act changed, in a sentence. `moment` names the act, for an exact undo.

    `left` counts by state what was meant too and stayed as it is, because somebody else was first.
    """

    count: int
    text: str
    moment: float
    left: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Archive:
    """Acts of one operator on a store's dead letters."""

    store: Store
    clock: Callable[[], float]
    who: str
    origin: str

    def archive(self, where: DeadLetterFilter) -> ArchiveResult:
        with self.store.borrow(write=True) as connection:
            now = self._moment(connection)
            count = states.move(connection, where.where(), "dead", "archived", now=now)
            self._trace(connection, "archived", "archived", now)
            left, told = _left(connection, where, "archived", now)
            planned = _rows(connection, _PLANNED, [now])
            sentences = [f"Archived {dead_letters(count)}.", *told, *map(_leaves_out, planned)]
            return self._done("archive", where, ArchiveResult(count, " ".join(sentences), now, left))

    def restore(self, where: DeadLetterFilter, *, moment: float | None = None) -> ArchiveResult:
        with self.store.borrow(write=True) as connection:
            condition, parameters = replace(where, state=None).where()
            if moment is not None:
                condition, parameters = f"{condition} AND state_at = ?", [*parameters, moment]
            now = self._moment(connection)
            count = states.move(connection, (condition, parameters), "archived", "dead", now=now)
            self._trace(connection, "restored", "dead", now)
            left, told = (
                _left(connection, where, "dead", now)
                if moment is None
                else _changed_since(connection, moment, count)
            )
            sentences = [f"Restored {dead_letters(count)}.", *told]
            return self._done("restore", where, ArchiveResult(count, " ".join(sentences), now, left))

    def purge(self, where: DeadLetterFilter, *, confirmation: str, min_age: float) -> ArchiveResult:
        """ConfigError when it was not confirmed; that is in the audit as well."""
        with self.store.borrow(write=True) as connection:
            now = self._moment(connection)
            which = purgeable(where, now - min_age)
            phrase = purge_phrase(connection, which)
            confirmed = confirmation.strip() == phrase
            if confirmed:
                result = self._purged(connection, which, now, min_age)
            else:
                result = ArchiveResult(
                    0, f"Refused: {confirmation.strip()!r} was typed instead of {phrase!r}.", now
                )
            self._done("purge", where, result)
        if not confirmed:
            raise ConfigError(
                "Purging deletes for good and was not confirmed.", fix=f"Type exactly: {phrase}"
            )
        return result

    def reveal(self, ids: Sequence[str], selection: Mapping[str, Any]) -> ArchiveResult:
        with self.store.borrow(write=True) as connection:
            now = self.clock()
            connection.execute(_REVEALED, [list(ids), now, self.who, self.origin])
            result = ArchiveResult(len(ids), f"{dead_letters(len(ids)).capitalize()} shown unmasked.", now)
            self._audit("reveal", selection, result)
        return result

    def _purged(
        self, connection: duckdb.DuckDBPyConnection, which: states.Condition, now: float, min_age: float
    ) -> ArchiveResult:
        count = states.move(
            connection,
            which,
            "archived",
            "purged",
            now=now,
            key=None,
            key_mark=None,
            error_text="",
            source=None,
        )
        connection.execute(f"DELETE FROM dead_letter_bodies WHERE message_id IN ({_PURGED})", [now])
        connection.execute(
            f"UPDATE operation_records SET text = NULL WHERE text IS NOT NULL AND message_id IN ({_PURGED})",
            [now],
        )
        self._trace(connection, "purged", "purged", now)
        if not count:
            return ArchiveResult(
                0,
                f"Nothing was purged: no archived dead letter that matches is older than {min_age / 3600:g} h.",
                now,
            )
        return ArchiveResult(
            count,
            f"Purged {dead_letters(count)} for good. New records use their room in the store's file; `store compact` clears it now.",
            now,
        )

    def _done(self, action: str, where: DeadLetterFilter, result: ArchiveResult) -> ArchiveResult:
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

    def _trace(self, connection: duckdb.DuckDBPyConnection, what: str, state: str, now: float) -> None:
        """A line in the life of each dead letter that this act moved: those of its state and moment."""
        connection.execute(_TRACED, [now, what, self.who, self.origin, state, now])

    def _moment(self, connection: duckdb.DuckDBPyConnection) -> float:
        """Now, or the next moment that no act has yet: two clears within one tick of the clock stay two."""
        now = self.clock()
        while _rows(connection, "SELECT 1 FROM dead_letters WHERE state_at = ? LIMIT 1", [now]):
            now = math.nextafter(now, math.inf)
        return now


def purgeable(where: DeadLetterFilter, before: float) -> states.Condition:
    """What the filter matches and was archived by then."""
    condition, parameters = replace(where, state=None).where()
    return f"{condition} AND state_at <= ?", [*parameters, before]


def purge_phrase(connection: duckdb.DuckDBPyConnection, which: states.Condition) -> str:
    """What a person must type: it names the count, so that it fits only what was seen."""
    condition, parameters = which
    sql = f"SELECT count(*) FROM dead_letters WHERE state = 'archived' AND {condition}"
    return f"purge {_rows(connection, sql, parameters)[0][0]}"


def dead_letters(count: int) -> str:
    return "1 dead letter" if count == 1 else f"{count:,} dead letters"


def _left(
    connection: duckdb.DuckDBPyConnection, where: DeadLetterFilter, state: str, now: float
) -> tuple[dict[str, int], list[str]]:
    """What was meant too and stays as it is: what is being replayed now, and any of those chosen by id."""
    condition, parameters = replace(where, state=None).where()
    (number, people), *_ = _rows(connection, _REPLAYING.format(where=condition), parameters)
    left, told = {}, []
    if number:
        left["replaying"] = number
        by = f" by {', '.join(filter(None, people))}" if any(people) else ""
        told.append(
            f"{_are(number)} being replayed{by} now, so nothing was done about {'it' if number == 1 else 'them'}."
        )
    if where.ids or where.message_id:
        others = (
            f"SELECT state, count(*) FROM dead_letters WHERE {condition} AND state <> 'replaying' "
            "AND NOT (state = ? AND state_at = ?) GROUP BY state ORDER BY state"
        )
        for name, count in _rows(connection, others, [*parameters, state, now]):
            left[name] = count
            told.append(f"{_are(count)} {_STAYED[name]}.")
    return left, told


def _changed_since(
    connection: duckdb.DuckDBPyConnection, moment: float, count: int
) -> tuple[dict[str, int], list[str]]:
    """Of what one act archived: what is not archived by it any more."""
    sql = "SELECT count(*) FROM letter_events WHERE what = 'archived' AND happened_at = ?"
    gone = _rows(connection, sql, [moment])[0][0] - count
    if gone <= 0:
        return {}, []
    return {"changed": gone}, [
        f"{_are(gone)} not archived by that act any more: somebody was there meanwhile."
    ]


def _leaves_out(row: Sequence[Any]) -> str:
    operation_id, who, number = row
    return f"The replay {operation_id} of {who} meant to send {number:,} of them, and leaves them out now."


def _are(number: int) -> str:
    return "1 is" if number == 1 else f"{number:,} are"


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[Any]) -> list[Any]:
    return list(connection.execute(sql, parameters).fetchall())
