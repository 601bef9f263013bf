"""Dead letters over a store: the only place that changes them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from producer_core.dlq import adding, coding, states
from producer_core.dlq.by_id import among, fetch
from producer_core.dlq.filter import DeadLetterFilter
from producer_core.dlq.groups import Group, read_group
from producer_core.errors import ConfigError
from producer_core.events import DeadLetter

if TYPE_CHECKING:
    import pyarrow

    from producer_core.store import Store

Column = Literal["topic", "code", "verdict", "state", "kind", "fingerprint", "cluster_id", "producer_id"]
_COLUMNS = ("topic", "code", "verdict", "state", "kind", "fingerprint", "cluster_id", "producer_id")

_LISTED = (
    "SELECT {what} FROM dead_letters WHERE {where} ORDER BY failed_at DESC, message_id DESC LIMIT ? OFFSET ?"
)
_GROUPED = """
SELECT fingerprint, arg_max(code, failed_at) AS code, count(*) AS count, min(failed_at) AS first_seen,
       max(failed_at) AS last_seen, list_sort(list(DISTINCT topic)) AS topics,
       arg_max(error_text, failed_at) AS sample_text, histogram(verdict) AS verdicts
FROM dead_letters WHERE {where}
GROUP BY fingerprint ORDER BY count DESC, last_seen DESC LIMIT ?"""

_EMPTY = """
DELETE FROM dead_letter_bodies
WHERE message_id IN (SELECT message_id FROM dead_letters WHERE state = 'purged')"""


@dataclass(frozen=True)
class Result:
    """How many letters an act changed, in a sentence. `moment` names the act, for an exact undo."""

    count: int
    text: str
    moment: float


class DeadLetters:
    """Each change is one transaction; what somebody else changed first stays as he left it."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    def add(self, letters: Sequence[DeadLetter]) -> None:
        """Keep them. One whose message died before is joined to that row: attempts added, dead again.

        A death that is there already (the same letter twice) changes nothing.
        """
        if letters:
            with self._store.borrow(write=True) as connection:
                adding.keep(connection, letters, now=self._clock())

    # looking

    def find(self, where: DeadLetterFilter, *, limit: int = 100, offset: int = 0) -> list[DeadLetter]:
        """A listing, the latest death first: value, headers, timestamp and single attempts stay empty."""
        asked = self._listing(where, "*", limit, offset)
        return [coding.read_letter(row) for row in self._rows(*asked)]

    def table(self, where: DeadLetterFilter, *, limit: int = 100, offset: int = 0) -> pyarrow.Table:
        """The listing of `find` with every column (sizes, counts, states, landing) as an Arrow table."""
        sql, parameters = self._listing(where, ", ".join(coding.LETTER_COLUMNS), limit, offset)
        with self._store.borrow() as connection:
            return connection.sql(sql, params=parameters).to_arrow_table()

    def ids(self, where: DeadLetterFilter, *, limit: int | None = None) -> list[str]:
        """The ids that the filter matches now, the oldest message first: what a plan freezes."""
        condition, parameters = where.where()
        sql = (
            f"SELECT message_id FROM dead_letters WHERE {condition} ORDER BY accepted_at, message_id LIMIT ?"
        )
        return [row["message_id"] for row in self._rows(sql, [*parameters, limit])]

    def get(self, message_id: str) -> DeadLetter | None:
        """One letter with its body and all its attempts."""
        return next(iter(self.bodies([message_id])), None)

    def bodies(self, ids: Sequence[str]) -> list[DeadLetter]:
        """Letters with their bodies, the oldest message first."""
        with self._store.borrow() as connection:
            rows = fetch(connection, "dead_letters", coding.LETTER_COLUMNS, ids)
            bodies = fetch(connection, "dead_letter_bodies", coding.BODY_COLUMNS, ids)
        found = [coding.read_letter(row, bodies.get(message_id)) for message_id, row in rows.items()]
        return sorted(found, key=lambda letter: (letter.accepted_at, letter.message_id))

    def count(self, where: DeadLetterFilter) -> int:
        """How many the filter matches now."""
        condition, parameters = where.where()
        return int(
            self._rows(f"SELECT count(*) AS n FROM dead_letters WHERE {condition}", parameters)[0]["n"]
        )

    def count_by(self, where: DeadLetterFilter, column: Column) -> dict[str, int]:
        """How many by the column's values, most first."""
        if column not in _COLUMNS:
            raise ConfigError(
                f"Dead letters are not counted by {column!r}.", fix=f"Use {', '.join(_COLUMNS)}."
            )
        condition, parameters = where.where()
        sql = (
            f"SELECT {column} AS name, count(*) AS n FROM dead_letters WHERE {condition} "
            "GROUP BY name ORDER BY n DESC, name"
        )
        return {row["name"]: row["n"] for row in self._rows(sql, parameters)}

    def groups(self, where: DeadLetterFilter, *, limit: int = 50) -> list[Group]:
        """Letters with one cause as one group, the largest first."""
        condition, parameters = where.where()
        rows = self._rows(_GROUPED.format(where=condition), [*parameters, limit])
        return [read_group(row) for row in rows]

    # clearing

    def archive(self, where: DeadLetterFilter, *, who: str, origin: str) -> Result:
        """Put aside what is dead and matches. `restore` brings it back; nothing is deleted."""
        with self._store.borrow(write=True) as connection:
            now = self._moment()
            count = states.move(connection, where.where(), "dead", "archived", now=now)
            result = Result(count, f"Archived {_letters(count)}.", now)
            self._audit("archive", where, result, who=who, origin=origin)
        return result

    def restore(
        self, where: DeadLetterFilter, *, who: str, origin: str, moment: float | None = None
    ) -> Result:
        """Bring archived letters back; with `moment` (of an archive's Result) only what that act archived."""
        with self._store.borrow(write=True) as connection:
            condition, parameters = replace(where, state=None).where()
            if moment is not None:
                condition, parameters = f"{condition} AND state_at = ?", [*parameters, moment]
            now = self._moment()
            count = states.move(connection, (condition, parameters), "archived", "dead", now=now)
            result = Result(count, f"Restored {_letters(count)}.", now)
            self._audit("restore", where, result, who=who, origin=origin)
        return result

    def purge_phrase(self, where: DeadLetterFilter, *, min_age: float = 86400) -> str:
        """What a person must type to purge: it names the count, so that it fits only what was seen."""
        condition, parameters = self._purgeable(where, min_age)
        sql = f"SELECT count(*) AS n FROM dead_letters WHERE state = 'archived' AND {condition}"
        return f"purge {self._rows(sql, parameters)[0]['n']}"

    def purge(
        self, where: DeadLetterFilter, *, who: str, origin: str, confirmation: str, min_age: float = 86400
    ) -> Result:
        """Delete for good the keys, bodies and attempts of what was archived `min_age` seconds ago or earlier.

        `confirmation` must be `purge_phrase`'s answer. The row stays, without content, as a trace.
        """
        with self._store.borrow(write=True) as connection:
            phrase = self.purge_phrase(where, min_age=min_age)
            if confirmation.strip() != phrase:
                raise ConfigError(
                    "Purging deletes for good and was not confirmed.", fix=f"Type exactly: {phrase}"
                )
            now, which = self._moment(), self._purgeable(where, min_age)
            count = states.move(
                connection, which, "archived", "purged", now=now, key=None, error_text="", source=None
            )
            connection.execute(_EMPTY)
            result = Result(count, f"Purged {_letters(count)} for good.", now)
            self._audit("purge", where, result, who=who, origin=origin)
        return result

    # replaying: compare-and-set, so that two processes never hold one letter

    def claim(self, operation_id: str, ids: Sequence[str]) -> list[str]:
        """Take these for a replay; the ids that were still dead, and are now the operation's."""
        condition, parameters = among(ids)
        with self._store.borrow(write=True) as connection:
            where = (f"replayable AND {condition}", parameters)
            moved = states.take(
                connection, where, "dead", "replaying", now=self._clock(), operation_id=operation_id
            )
        taken = set(moved)
        return [message_id for message_id in ids if message_id in taken]

    def unclaim(self, operation_id: str, ids: Sequence[str] | None = None) -> list[str]:
        """Give back what the operation holds (all of it, or these ids): dead again, nothing else changed."""
        condition, parameters = ("true", []) if ids is None else among(ids)
        where = (f"operation_id = ? AND {condition}", [operation_id, *parameters])
        with self._store.borrow(write=True) as connection:
            return states.take(connection, where, "replaying", "dead", now=self._clock())

    def settle_replayed(self, message_id: str, partition: int | None, offset: int | None) -> bool:
        """The broker acknowledged the replay; False when the letter was not being replayed any more."""
        return self._settle(message_id, "replayed", partition, offset)

    def settle_landed(self, message_id: str, partition: int | None, offset: int | None) -> bool:
        """The message was on its topic already; False when the letter was not being replayed any more."""
        return self._settle(message_id, "landed", partition, offset)

    def settle_failed(self, letter: DeadLetter) -> bool:
        """It died again in its replay: dead, its attempts joined, one replay more; False when it is unknown."""
        with self._store.borrow(write=True) as connection:
            return adding.failed_again(connection, letter, now=self._clock())

    def _settle(self, message_id: str, state: Any, partition: int | None, offset: int | None) -> bool:
        with self._store.borrow(write=True) as connection:
            moved = states.move(
                connection,
                among([message_id]),
                "replaying",
                state,
                now=self._clock(),
                landed_partition=partition,
                landed_offset=offset,
            )
        return moved > 0

    # helpers

    def _rows(self, sql: str, parameters: Sequence[Any]) -> list[dict[str, Any]]:
        with self._store.borrow() as connection:
            found = connection.execute(sql, parameters)
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def _listing(self, where: DeadLetterFilter, what: str, limit: int, offset: int) -> tuple[str, list[Any]]:
        condition, parameters = where.where()
        return _LISTED.format(what=what, where=condition), [*parameters, limit, offset]

    def _purgeable(self, where: DeadLetterFilter, min_age: float) -> tuple[str, list[Any]]:
        condition, parameters = replace(where, state=None).where()
        return f"{condition} AND state_at <= ?", [*parameters, self._clock() - min_age]

    def _moment(self) -> float:
        """Now, or the next moment that no act has yet: two clears within one tick of the clock stay two."""
        now = self._clock()
        while self._rows("SELECT 1 FROM dead_letters WHERE state_at = ? LIMIT 1", [now]):
            now = math.nextafter(now, math.inf)
        return now

    def _audit(self, action: str, where: DeadLetterFilter, result: Result, *, who: str, origin: str) -> None:
        self._store.audit(
            who=who,
            origin=origin,
            action=action,
            selection=where.to_query(),
            count=result.count,
            outcome=result.text,
        )


def _letters(count: int) -> str:
    return "1 dead letter" if count == 1 else f"{count:,} dead letters"
