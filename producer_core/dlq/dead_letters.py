"""Dead letters over a store: the only place that changes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from producer_core._internal.actor import current_actor
from producer_core.dlq import archive as dlq_archive
from producer_core.dlq import codec, insert, states
from producer_core.dlq import dataframe as framing
from producer_core.dlq import groups as grouping
from producer_core.dlq import search as searching
from producer_core.dlq.archive import MIN_AGE, Archive, ArchiveResult
from producer_core.dlq.bulk_update import claim_records
from producer_core.dlq.count import COLUMNS, Column, counted
from producer_core.dlq.filter import DeadLetterFilter
from producer_core.dlq.groups import Groups
from producer_core.dlq.listing import Page, PageCursor, listing
from producer_core.dlq.lookup import among, fetch_rows
from producer_core.dlq.search import SearchResult
from producer_core.errors import ConfigError
from producer_core.events import DeadLetter

if TYPE_CHECKING:
    import pyarrow

    from producer_core.producer.frames import Kind
    from producer_core.store import Store


class DeadLetters:
    """Each change is one transaction; what somebody else changed first stays as he left it."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    def add(self, dead_letters: Sequence[DeadLetter]) -> None:
        """Keep them. One whose message died before is joined to that row: attempts added, dead again.

        A death that is there already (the same dead letter twice) changes nothing.
        """
        if dead_letters:
            with self._store.borrow(write=True) as connection:
                insert.keep(connection, dead_letters, now=self._clock())

    # looking

    def find(
        self, where: DeadLetterFilter, *, limit: int = 100, offset: int = 0, after: PageCursor | None = None
    ) -> list[DeadLetter]:
        """A listing, the latest death first: value, headers, timestamp and single attempts stay empty."""
        sql, parameters = listing(self.frozen(where), "*", limit=limit, offset=offset, after=after)
        return [codec.read_dead_letter(row) for row in self._rows(sql, parameters)]

    def page(self, where: DeadLetterFilter, *, limit: int = 100, after: PageCursor | None = None) -> Page:
        """A listing by pages: give `next` of the one before as `after`. Each takes as long as the first."""
        found = self.find(where, limit=limit + 1, after=after)
        last = found[limit - 1] if 0 < limit < len(found) else None
        return Page(tuple(found[:limit]), PageCursor(last.failed_at, last.message_id) if last else None)

    def table(
        self, where: DeadLetterFilter, *, limit: int = 100, offset: int = 0, after: PageCursor | None = None
    ) -> pyarrow.Table:
        """The listing of `find` with every column (sizes, counts, states, landing) as an Arrow table."""
        columns = ", ".join(codec.LETTER_COLUMNS)
        sql, parameters = listing(self.frozen(where), columns, limit=limit, offset=offset, after=after)
        with self._store.borrow() as connection:
            return connection.sql(sql, params=parameters).to_arrow_table()

    def to_frame(
        self,
        where: DeadLetterFilter | None = None,
        *,
        kind: Kind | None = None,
        limit: int = framing.LIMIT,
        bodies: bool = False,
        masked: bool = True,
    ) -> Any:
        """The listing of `find` as a frame (`kind`: pandas, polars or arrow), with the values where `bodies` is set.

        Keys, values and error texts are masked. `masked=False` shows them as they are, which is written into the
        audit and into the life of each dead letter: what a notebook shows stays in its file.
        """
        table = self.table(where or DeadLetterFilter(), limit=limit)
        rows = table.to_pylist()
        dead_letters = [codec.read_dead_letter(row) for row in rows]
        if bodies:
            whole = {
                dead_letter.message_id: dead_letter
                for dead_letter in self.bodies([one.message_id for one in dead_letters])
            }
            dead_letters = [whole.get(dead_letter.message_id, dead_letter) for dead_letter in dead_letters]
        if not masked and dead_letters:
            ids = [dead_letter.message_id for dead_letter in dead_letters]
            asked = (where or DeadLetterFilter()).to_query()
            self.reveal(ids, who=current_actor(), origin="python", selection=asked)
        sizes = [row["value_size"] for row in rows]
        return framing.frame(dead_letters, sizes, kind=kind, bodies=bodies, masked=masked)

    def search(
        self,
        where: DeadLetterFilter,
        *,
        limit: int = 100,
        after: PageCursor | None = None,
        seconds: float = searching.SECONDS,
        dead_letters: int = searching.LETTERS,
    ) -> SearchResult:
        """A listing that looks into bodies too (`body`), within a bound, and says how far it looked."""
        of = self.count(replace(where, body=None))
        return searching.search(
            self._store, where, of=of, limit=limit, after=after, seconds=seconds, dead_letters=dead_letters
        )

    def frozen(self, where: DeadLetterFilter) -> DeadLetterFilter:
        """The filter itself; with a `body`, the ids of exactly the dead letters that have it now, for an act.

        ConfigError where the search for them would not see every dead letter that matches the rest of the filter: an
        act on a part that nobody chose would be neither what was asked for nor known afterwards.
        """
        if where.body is None:
            return where
        return searching.frozen(where, self.search(where, limit=searching.MOST_IDS))

    def ids(self, where: DeadLetterFilter, *, limit: int | None = None) -> list[str]:
        """The ids that the filter matches now, the oldest message first: what a plan freezes."""
        condition, parameters = self.frozen(where).where()
        sql = f"SELECT message_id FROM dead_letters WHERE {condition} ORDER BY {codec.OLDEST_FIRST} LIMIT ?"
        return [row["message_id"] for row in self._rows(sql, [*parameters, limit])]

    def get(self, message_id: str) -> DeadLetter | None:
        """One dead letter with its body and all its attempts."""
        return next(iter(self.bodies([message_id])), None)

    def bodies(self, ids: Sequence[str]) -> list[DeadLetter]:
        """Letters with their bodies, the oldest message first."""
        with self._store.borrow() as connection:
            rows = fetch_rows(connection, "dead_letters", codec.WHOLE_COLUMNS, ids)
            bodies = {
                row[0]: row for row in fetch_rows(connection, "dead_letter_bodies", codec.BODY_COLUMNS, ids)
            }
        found = [codec.whole_dead_letter(row, bodies.get(row[0])) for row in rows]
        return sorted(found, key=codec.age)

    def count(self, where: DeadLetterFilter) -> int:
        """How many the filter matches now."""
        sql, parameters = counted(self.frozen(where), ())
        return int(self._rows(f"SELECT sum(n)::BIGINT AS n FROM ({sql})", parameters)[0]["n"])

    def count_by(self, where: DeadLetterFilter, column: Column) -> dict[str, int]:
        """How many by the column's values, most first."""
        if column not in COLUMNS:
            raise ConfigError(
                f"Dead letters are not counted by {column!r}.", fix=f"Use {', '.join(COLUMNS)}."
            )
        counts, parameters = counted(self.frozen(where), (column,))
        sql = f"SELECT {column} AS name, sum(n)::BIGINT AS n FROM ({counts}) GROUP BY name HAVING sum(n) > 0 ORDER BY n DESC, name"
        return {row["name"]: row["n"] for row in self._rows(sql, parameters)}

    def groups(self, where: DeadLetterFilter, *, limit: int = 50) -> Groups:
        """Letters with one cause as one group, the largest first, each with its trend over the filter's time."""
        chosen = self.frozen(where)
        with self._store.borrow() as connection:
            return Groups(grouping.find(connection, chosen, limit=limit))

    # clearing: each act writes the audit and a line in the life of every dead letter it moved

    def archive(self, where: DeadLetterFilter, *, who: str, origin: str) -> ArchiveResult:
        """Put aside what is dead and matches. `restore` brings it back; nothing is deleted.

        What is being replayed, or was moved by somebody else before, is left alone, and the result says so.
        """
        return self._by(who, origin).archive(self.frozen(where))

    def restore(
        self, where: DeadLetterFilter, *, who: str, origin: str, moment: float | None = None
    ) -> ArchiveResult:
        """Bring archived dead letters back; with `moment` (of an archive's Result) only what that act archived."""
        return self._by(who, origin).restore(self._archived(where), moment=moment)

    def purge_phrase(self, where: DeadLetterFilter, *, min_age: float = MIN_AGE) -> str:
        """What a person must type to purge: it names the count, so that it fits only what was seen."""
        chosen = self._archived(where)
        with self._store.borrow() as connection:
            return dlq_archive.purge_phrase(
                connection, dlq_archive.purgeable(chosen, self._clock() - min_age)
            )

    def purge(
        self,
        where: DeadLetterFilter,
        *,
        who: str,
        origin: str,
        confirmation: str,
        min_age: float = MIN_AGE,
    ) -> ArchiveResult:
        """Delete for good the keys, bodies, attempts and error texts of what was archived `min_age` seconds ago or
        earlier; DuckDB uses their room in the file again.

        `confirmation` must be `purge_phrase`'s answer, else ConfigError; the audit has both. The row stays, without
        content, as a trace.
        """
        return self._by(who, origin).purge(self._archived(where), confirmation=confirmation, min_age=min_age)

    def reveal(
        self, ids: Sequence[str], *, who: str, origin: str, selection: Mapping[str, Any] | None = None
    ) -> ArchiveResult:
        """Write down that a person sees these unmasked. Call it before they are shown, so that none is shown unseen.

        Programs that use `get` and `bodies` have the raw bytes, and nothing is written down.
        """
        asked = {"ids": ",".join(ids)} if selection is None else selection
        return self._by(who, origin).reveal(ids, asked)

    # replaying: compare-and-set, so that two processes never hold one dead letter

    def claim(self, operation_id: str, ids: Sequence[str]) -> list[str]:
        """Take these for a replay; the ids that were still dead, and are now the operation's."""
        with self._store.borrow(write=True) as connection:
            return claim_records(connection, operation_id, ids, now=self._clock())

    def unclaim(self, operation_id: str, ids: Sequence[str] | None = None) -> list[str]:
        """Give back what the operation holds (all of it, or these ids): dead again, nothing else changed."""
        condition, parameters = ("true", []) if ids is None else among(ids)
        where = (f"operation_id = ? AND {condition}", [operation_id, *parameters])
        with self._store.borrow(write=True) as connection:
            return states.take(connection, where, "replaying", "dead", now=self._clock())

    def settle_replayed(self, message_id: str, partition: int | None, offset: int | None) -> bool:
        """The broker acknowledged the replay; False when the dead letter was not being replayed any more."""
        return self._settle(message_id, "replayed", partition, offset)

    def settle_landed(self, message_id: str, partition: int | None, offset: int | None) -> bool:
        """The message was on its topic already; False when the dead letter was not being replayed any more."""
        return self._settle(message_id, "landed", partition, offset)

    def settle_failed(self, dead_letter: DeadLetter) -> bool:
        """It died again in its replay: dead, its attempts joined, one replay more; False when it is unknown."""
        with self._store.borrow(write=True) as connection:
            return insert.failed_again(connection, dead_letter, now=self._clock())

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

    def _archived(self, where: DeadLetterFilter) -> DeadLetterFilter:
        """The filter for an act on what is archived; a body is looked for only there."""
        return where if where.body is None else self.frozen(replace(where, state="archived"))

    def _rows(self, sql: str, parameters: Sequence[Any]) -> list[dict[str, Any]]:
        with self._store.borrow() as connection:
            found = connection.execute(sql, parameters)
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def _by(self, who: str, origin: str) -> Archive:
        return Archive(self._store, self._clock, who, origin)
