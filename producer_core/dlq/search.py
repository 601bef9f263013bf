"""Search keys, values and headers of dead letters, the latest failure first, within limits of time, number and bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from producer_core._internal.plural import plural
from producer_core.dlq import codec
from producer_core.dlq.filter import DeadLetterFilter, content_matches
from producer_core.dlq.listing import PageCursor, listing
from producer_core.dlq.lookup import fetch
from producer_core.errors import ConfigError
from producer_core.events import DeadLetter

if TYPE_CHECKING:
    from producer_core.store import Store

SECONDS = 5.0
MAX_SEARCHED = 200_000
MAX_IDS = 10_000
"""Ids found by a search that one change accepts."""

_COLUMNS = ("message_id", "failed_at", "key", "value_size")
_SLICE_ROWS = 4_000
"""Dead letters per slice. Above 5,000, DuckDB sorts all rows instead of keeping the latest, which is 100 times slower."""

_BORROW_LIMIT = 10.0  # a slice takes 0.1 s; a busy machine must not end the search
_BODIES_PER_QUERY = 2000  # DuckDB still uses the index for this many ids
_BYTES_PER_QUERY = 32 * 2**20
_NO_IDS = ("",)
"""The ids of an empty selection. No message has the id ""; an empty tuple would select everything."""


@dataclass(frozen=True)
class SearchResult:
    """The dead letters found; `looked_at` of the `of` dead letters that match the rest of the filter were searched.

    `complete`: all of them were searched. `next` is the cursor to continue with.
    """

    dead_letters: tuple[DeadLetter, ...]
    looked_at: int
    of: int
    complete: bool
    next: PageCursor | None = None

    @property
    def text(self) -> str:
        """Say how many dead letters were searched and found."""
        if self.complete:
            return f"Searched {plural(self.of, 'dead letter')}: {len(self.dead_letters):,} found."
        back = (
            f", back to {datetime.fromtimestamp(self.next.failed_at, UTC):%Y-%m-%d %H:%M:%S} UTC"
            if self.next
            else ""
        )
        return f"Searched {self.looked_at:,} of {self.of:,}, the latest first{back}: {len(self.dead_letters):,} found so far."


def search(
    store: Store,
    where: DeadLetterFilter,
    *,
    total: int,
    limit: int = 100,
    after: PageCursor | None = None,
    seconds: float = SECONDS,
    dead_letters: int = MAX_SEARCHED,
    monotonic: Callable[[], float] = time.monotonic,
) -> SearchResult:
    """Return the matching dead letters without bodies. The search ends at `limit` found, after `seconds`, or after
    `dead_letters` searched.

    The store is borrowed for one slice at a time, so that writers do not wait for the whole search.
    """
    started, without_body = monotonic(), replace(where, body=None)
    found: list[str] = []
    searched, complete = 0, False
    while True:
        count = min(_SLICE_ROWS, dead_letters - searched)
        rows = _slice(store, without_body, after, count)
        for row, body in _with_bodies(store, rows):
            searched, after = searched + 1, PageCursor(row["failed_at"], row["message_id"])
            if where.body is None or _matches(where.body, row, body):
                found.append(row["message_id"])
            if len(found) == limit:
                break
        else:
            complete = len(rows) < count
        if complete or len(found) == limit or searched >= dead_letters or monotonic() - started > seconds:
            listed = _listed(store, found)
            return SearchResult(listed, searched, max(total, searched), complete, None if complete else after)


def _matches(text: str, row: Mapping[str, Any], body: Mapping[str, Any] | None) -> bool:
    value, headers = (body["value"], codec.read_headers(body["headers"])) if body else (None, ())
    return content_matches(text, row["key"], value, headers)


def _listed(store: Store, ids: Sequence[str]) -> tuple[DeadLetter, ...]:
    with store.borrow(limit=_BORROW_LIMIT) as connection:
        rows = fetch(connection, "dead_letters", codec.LETTER_COLUMNS, ids)
    return tuple(codec.read_dead_letter(rows[message_id]) for message_id in ids if message_id in rows)


def frozen(where: DeadLetterFilter, found: SearchResult) -> DeadLetterFilter:
    """Return a filter for exactly the dead letters found. Raise ConfigError if the search is incomplete."""
    if not found.complete:
        raise ConfigError(
            f"Nothing was changed: the content search is incomplete. {found.text}",
            fix="Narrow the selection (topic, group, since, until) so that the search can complete.",
        )
    ids = tuple(dead_letter.message_id for dead_letter in found.dead_letters)
    return replace(where, body=None, ids=ids or _NO_IDS)


def _slice(
    store: Store, where: DeadLetterFilter, after: PageCursor | None, count: int
) -> list[dict[str, Any]]:
    sql, parameters = listing(where, ", ".join(_COLUMNS), limit=count, after=after)
    with store.borrow(limit=_BORROW_LIMIT) as connection:
        rows = connection.execute(sql, parameters).fetchall()
    return [dict(zip(_COLUMNS, row, strict=True)) for row in rows]


def _with_bodies(
    store: Store, rows: Sequence[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Yield each row with its body, reading a limited number of bytes per query."""
    for batch in _by_size(rows):
        with store.borrow(limit=_BORROW_LIMIT) as connection:
            ids = [row["message_id"] for row in batch]
            bodies = fetch(connection, "dead_letter_bodies", ("message_id", "value", "headers"), ids)
        for row in batch:
            yield row, bodies.get(row["message_id"])


def _by_size(rows: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        if len(batch) == _BODIES_PER_QUERY or (batch and size + (row["value_size"] or 0) > _BYTES_PER_QUERY):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += row["value_size"] or 0
    if batch:
        yield batch
