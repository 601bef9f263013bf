"""List, change and replay the dead letters of a store. All changes go through this class."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from producer_core._internal.actor import current_actor
from producer_core.dlq import archive as dlq_archive
from producer_core.dlq import codec, insert, states
from producer_core.dlq import dataframe as dlq_dataframe
from producer_core.dlq import groups as dlq_groups
from producer_core.dlq import search as dlq_search
from producer_core.dlq.archive import MIN_AGE, Archive, ArchiveResult
from producer_core.dlq.claim_and_settle import claim_by_id
from producer_core.dlq.count import COLUMNS, Column, count_query
from producer_core.dlq.displayed_body import decoder_of, keys_with_schema
from producer_core.dlq.filter import DeadLetterFilter
from producer_core.dlq.groups import Groups
from producer_core.dlq.listing import Page, PageCursor, listing
from producer_core.dlq.lookup import fetch_rows, id_in
from producer_core.dlq.search import SearchResult
from producer_core.errors import ConfigError
from producer_core.events import DeadLetter

if TYPE_CHECKING:
    import pyarrow

    from producer_core.producer.frames import Kind
    from producer_core.store import Store


class DeadLetters:
    """The dead letters of a store. Each change is one transaction; dead letters that others changed first stay unchanged."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    def add(self, dead_letters: Sequence[DeadLetter]) -> None:
        """Store these dead letters. If the message already has one, its row gets the new attempts and is dead again.

        Adding the same dead letter twice changes nothing.
        """
        if dead_letters:
            with self._store.borrow(write=True) as connection:
                insert.write(connection, dead_letters, now=self._clock())

    # reading

    def find(
        self, where: DeadLetterFilter, *, limit: int = 100, offset: int = 0, after: PageCursor | None = None
    ) -> list[DeadLetter]:
        """Return a listing, the latest failure first. Value, headers, timestamp and attempts are not read."""
        sql, parameters = listing(self.frozen(where), "*", limit=limit, offset=offset, after=after)
        return [codec.read_dead_letter(row) for row in self._rows(sql, parameters)]

    def page(self, where: DeadLetterFilter, *, limit: int = 100, after: PageCursor | None = None) -> Page:
        """Return one page of the listing. Pass the previous page's `next` as `after`; every page takes the same time."""
        found = self.find(where, limit=limit + 1, after=after)
        last = found[limit - 1] if 0 < limit < len(found) else None
        return Page(tuple(found[:limit]), PageCursor(last.failed_at, last.message_id) if last else None)

    def table(
        self, where: DeadLetterFilter, *, limit: int = 100, offset: int = 0, after: PageCursor | None = None
    ) -> pyarrow.Table:
        """Return the listing of `find` as an Arrow table with all columns (sizes, counts, states, offsets)."""
        columns = ", ".join(codec.LETTER_COLUMNS)
        sql, parameters = listing(self.frozen(where), columns, limit=limit, offset=offset, after=after)
        with self._store.borrow() as connection:
            return connection.sql(sql, params=parameters).to_arrow_table()

    def to_frame(
        self,
        where: DeadLetterFilter | None = None,
        *,
        kind: Kind | None = None,
        limit: int = dlq_dataframe.LIMIT,
        bodies: bool = False,
        masked: bool = True,
    ) -> Any:
        """Return the listing of `find` as a data frame (`kind`: pandas, polars or arrow), with values if `bodies` is set.

        Keys, values and error texts are masked, because a notebook saves its output. `masked=False` shows them and
        records that in the audit log and in the events of each dead letter. Those with a schema id are decoded.
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
        elif headers := self.headers(keys_with_schema((one.message_id, one.key) for one in dead_letters)):
            dead_letters = [replace(one, headers=headers.get(one.message_id, ())) for one in dead_letters]
        if not masked and dead_letters:
            ids = [dead_letter.message_id for dead_letter in dead_letters]
            selection = (where or DeadLetterFilter()).to_query()
            self.reveal(ids, who=current_actor(), origin="python", selection=selection)
        sizes = [row["value_size"] for row in rows]
        return dlq_dataframe.frame(
            dead_letters, sizes, kind=kind, bodies=bodies, masked=masked, decoder=decoder_of(self._store)
        )

    def search(
        self,
        where: DeadLetterFilter,
        *,
        limit: int = 100,
        after: PageCursor | None = None,
        seconds: float = dlq_search.SECONDS,
        dead_letters: int = dlq_search.MAX_SEARCHED,
    ) -> SearchResult:
        """Return a listing that also searches keys, values and headers for `body`, within limits of time and number.

        The result says how many dead letters were searched.
        """
        total = self.count(replace(where, body=None))
        return dlq_search.search(
            self._store,
            where,
            total=total,
            limit=limit,
            after=after,
            seconds=seconds,
            dead_letters=dead_letters,
        )

    def frozen(self, where: DeadLetterFilter) -> DeadLetterFilter:
        """Return the filter itself or, with a `body`, a filter for the ids of the dead letters that contain it now.

        Raise ConfigError if the search is incomplete, because a change would then affect an arbitrary part.
        """
        if where.body is None:
            return where
        return dlq_search.frozen(where, self.search(where, limit=dlq_search.MAX_IDS))

    def ids(self, where: DeadLetterFilter, *, limit: int | None = None) -> list[str]:
        """Return the ids that the filter matches now, the oldest message first."""
        condition, parameters = self.frozen(where).where()
        sql = f"SELECT message_id FROM dead_letters WHERE {condition} ORDER BY {codec.OLDEST_FIRST} LIMIT ?"
        return [row["message_id"] for row in self._rows(sql, [*parameters, limit])]

    def get(self, message_id: str) -> DeadLetter | None:
        """Return one dead letter with body and attempts, or None."""
        return next(iter(self.bodies([message_id])), None)

    def bodies(self, ids: Sequence[str]) -> list[DeadLetter]:
        """Return the dead letters with bodies and attempts, the oldest message first."""
        with self._store.borrow() as connection:
            rows = fetch_rows(connection, "dead_letters", codec.WHOLE_COLUMNS, ids)
            bodies = {
                row[0]: row for row in fetch_rows(connection, "dead_letter_bodies", codec.BODY_COLUMNS, ids)
            }
        found = [codec.whole_dead_letter(row, bodies.get(row[0])) for row in rows]
        return sorted(found, key=codec.acceptance_order)

    def headers(self, ids: Sequence[str]) -> dict[str, codec.Headers]:
        """Return the headers by message id, without reading the values."""
        if not ids:
            return {}
        with self._store.borrow() as connection:
            rows = fetch_rows(connection, "dead_letter_bodies", ("message_id", "headers"), ids)
        return {message_id: codec.read_headers(headers) for message_id, headers in rows}

    def count(self, where: DeadLetterFilter) -> int:
        """Return the number of dead letters that the filter matches now."""
        sql, parameters = count_query(self.frozen(where), ())
        return int(self._rows(f"SELECT sum(n)::BIGINT AS n FROM ({sql})", parameters)[0]["n"])

    def count_by(self, where: DeadLetterFilter, column: Column) -> dict[str, int]:
        """Return the number of matching dead letters per value of the column, the largest first."""
        if column not in COLUMNS:
            raise ConfigError(
                f"Dead letters cannot be counted by {column!r}.", fix=f"Use one of {', '.join(COLUMNS)}."
            )
        counts, parameters = count_query(self.frozen(where), (column,))
        sql = f"SELECT {column} AS name, sum(n)::BIGINT AS n FROM ({counts}) GROUP BY name HAVING sum(n) > 0 ORDER BY n DESC, name"
        return {row["name"]: row["n"] for row in self._rows(sql, parameters)}

    def groups(self, where: DeadLetterFilter, *, limit: int = 50) -> Groups:
        """Return the dead letters grouped by cause, the largest group first, each with a trend over the time range."""
        selection = self.frozen(where)
        with self._store.borrow() as connection:
            return Groups(dlq_groups.find(connection, selection, limit=limit))

    # archiving: each change writes an audit row and an event for each dead letter

    def archive(self, where: DeadLetterFilter, *, who: str, origin: str) -> ArchiveResult:
        """Archive the matching dead letters in the state dead. Nothing is deleted; `restore` undoes it.

        Dead letters in a replay, or changed by others first, stay unchanged; the result counts them.
        """
        return self._archive_as(who, origin).archive(self.frozen(where))

    def restore(
        self, where: DeadLetterFilter, *, who: str, origin: str, moment: float | None = None
    ) -> ArchiveResult:
        """Restore archived dead letters; with the `moment` of an ArchiveResult, only those archived by that call."""
        return self._archive_as(who, origin).restore(self._archived(where), moment=moment)

    def purge_phrase(self, where: DeadLetterFilter, *, min_age: float = MIN_AGE) -> str:
        """Return the text that confirms a purge. It contains the count, so that it fits only the selection shown."""
        selection = self._archived(where)
        with self._store.borrow() as connection:
            return dlq_archive.purge_phrase(
                connection, dlq_archive.purgeable(selection, self._clock() - min_age)
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
        """Permanently delete the keys, bodies, attempts and error texts of dead letters archived at least `min_age`
        seconds ago. DuckDB reuses the freed space in the file.

        `confirmation` must be the text from `purge_phrase`, else ConfigError is raised and the refusal is audited. The
        row remains without content.
        """
        selection = self._archived(where)
        return self._archive_as(who, origin).purge(selection, confirmation=confirmation, min_age=min_age)

    def reveal(
        self, ids: Sequence[str], *, who: str, origin: str, selection: Mapping[str, Any] | None = None
    ) -> ArchiveResult:
        """Audit that an operator sees these dead letters unmasked. Call this before showing them.

        Programs that call `get` and `bodies` get the raw bytes without an audit row.
        """
        audited = {"ids": ",".join(ids)} if selection is None else selection
        return self._archive_as(who, origin).reveal(ids, audited)

    # replaying: compare-and-set, so that two processes never claim the same dead letter

    def claim(self, operation_id: str, ids: Sequence[str]) -> list[str]:
        """Claim these dead letters for a replay. Return the ids of those that were still dead."""
        with self._store.borrow(write=True) as connection:
            return claim_by_id(connection, operation_id, ids, now=self._clock())

    def unclaim(self, operation_id: str, ids: Sequence[str] | None = None) -> list[str]:
        """Return claimed dead letters (all of the operation, or these ids) to the state dead. Return their ids."""
        condition, parameters = ("true", []) if ids is None else id_in(ids)
        where = (f"operation_id = ? AND {condition}", [operation_id, *parameters])
        with self._store.borrow(write=True) as connection:
            return states.take(connection, where, "replaying", "dead", now=self._clock())

    def settle_replayed(self, message_id: str, partition: int | None, offset: int | None) -> bool:
        """Record that the broker acknowledged the replay. Return False if the dead letter is no longer in a replay."""
        return self._settle(message_id, "replayed", partition, offset)

    def settle_landed(self, message_id: str, partition: int | None, offset: int | None) -> bool:
        """Record that the message was already on its topic. Return False if the dead letter is no longer in a replay."""
        return self._settle(message_id, "landed", partition, offset)

    def settle_failed(self, dead_letter: DeadLetter) -> bool:
        """Record a failed replay: the state is dead again, with the new attempts. Return False for an unknown id."""
        with self._store.borrow(write=True) as connection:
            return insert.write_failed_replay(connection, dead_letter, now=self._clock())

    def _settle(self, message_id: str, state: Any, partition: int | None, offset: int | None) -> bool:
        with self._store.borrow(write=True) as connection:
            moved = states.move(
                connection,
                id_in([message_id]),
                "replaying",
                state,
                now=self._clock(),
                landed_partition=partition,
                landed_offset=offset,
            )
        return moved > 0

    # helpers

    def _archived(self, where: DeadLetterFilter) -> DeadLetterFilter:
        """Return the filter for a change of archived dead letters; a `body` is searched only in those."""
        return where if where.body is None else self.frozen(replace(where, state="archived"))

    def _rows(self, sql: str, parameters: Sequence[Any]) -> list[dict[str, Any]]:
        with self._store.borrow() as connection:
            found = connection.execute(sql, parameters)
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def _archive_as(self, who: str, origin: str) -> Archive:
        return Archive(self._store, self._clock, who, origin)
