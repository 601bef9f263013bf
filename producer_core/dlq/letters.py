"""Dead letters over a store: the only place that changes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from producer_core.dlq import adding, clearing, coding, states
from producer_core.dlq.by_id import among, fetch
from producer_core.dlq.clearing import MIN_AGE, Clearing, Result
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

    # clearing: each act writes the audit and a line in the life of every letter it moved

    def archive(self, where: DeadLetterFilter, *, who: str, origin: str) -> Result:
        """Put aside what is dead and matches. `restore` brings it back; nothing is deleted.

        What is being replayed, or was moved by somebody else before, is left alone, and the result says so.
        """
        return self._by(who, origin).archive(where)

    def restore(
        self, where: DeadLetterFilter, *, who: str, origin: str, moment: float | None = None
    ) -> Result:
        """Bring archived letters back; with `moment` (of an archive's Result) only what that act archived."""
        return self._by(who, origin).restore(where, moment=moment)

    def purge_phrase(self, where: DeadLetterFilter, *, min_age: float = MIN_AGE) -> str:
        """What a person must type to purge: it names the count, so that it fits only what was seen."""
        with self._store.borrow() as connection:
            return clearing.purge_phrase(connection, clearing.purgeable(where, self._clock() - min_age))

    def purge(
        self,
        where: DeadLetterFilter,
        *,
        who: str,
        origin: str,
        confirmation: str,
        min_age: float = MIN_AGE,
    ) -> Result:
        """Delete for good the keys, bodies, attempts and error texts of what was archived `min_age` seconds ago or
        earlier; DuckDB uses their room in the file again.

        `confirmation` must be `purge_phrase`'s answer, else ConfigError; the audit has both. The row stays, without
        content, as a trace.
        """
        return self._by(who, origin).purge(where, confirmation=confirmation, min_age=min_age)

    def reveal(
        self, ids: Sequence[str], *, who: str, origin: str, selection: Mapping[str, Any] | None = None
    ) -> Result:
        """Write down that a person sees these unmasked. Call it before they are shown, so that none is shown unseen.

        Programs that use `get` and `bodies` have the raw bytes, and nothing is written down.
        """
        asked = {"ids": ",".join(ids)} if selection is None else selection
        return self._by(who, origin).reveal(ids, asked)

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

    def _by(self, who: str, origin: str) -> Clearing:
        return Clearing(self._store, self._clock, who, origin)
