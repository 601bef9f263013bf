"""A search in bodies: dead letter by dead letter, the latest death first, within a bound of time, number and bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from producer_core.dlq import codec
from producer_core.dlq.filter import DeadLetterFilter, holds
from producer_core.dlq.listing import PageCursor, listing
from producer_core.dlq.lookup import fetch
from producer_core.errors import ConfigError
from producer_core.events import DeadLetter

if TYPE_CHECKING:
    from producer_core.store import Store

SECONDS = 5.0
LETTERS = 200_000
MOST_IDS = 10_000
"""An act takes at most so many ids that a search found."""

_NEEDED = ("message_id", "failed_at", "key", "value_size")
_AT_ONCE = 4_000
"""Letters a slice: beyond 5,000 DuckDB sorts everything instead of keeping the latest, a hundred times as slow."""

_PATIENCE = 10.0  # a slice takes a tenth of a second; a busy machine must not end the search
_BODIES_AT_ONCE = 2000  # that many ids in one statement still go through the index
_BYTES_AT_ONCE = 32 * 2**20
_NOTHING = ("",)
"""No message has this id: the ids of a selection that found nothing, because () selects everything."""


@dataclass(frozen=True)
class SearchResult:
    """What a search found, and how far it looked: at `looked_at` of the `of` dead letters that match the rest.

    `complete`: it looked at all of them, so there are no others. `next` goes on where it ended.
    """

    dead_letters: tuple[DeadLetter, ...]
    looked_at: int
    of: int
    complete: bool
    next: PageCursor | None = None

    @property
    def text(self) -> str:
        """How far it looked, in a sentence."""
        if self.complete:
            return f"Looked at all {self.of:,}: {len(self.dead_letters):,} found."
        back = (
            f", back to {datetime.fromtimestamp(self.next.failed_at, UTC):%Y-%m-%d %H:%M:%S} UTC"
            if self.next
            else ""
        )
        return f"Looked at {self.looked_at:,} of {self.of:,}, the latest first{back}: {len(self.dead_letters):,} found so far."


def search(
    store: Store,
    where: DeadLetterFilter,
    *,
    of: int,
    limit: int = 100,
    after: PageCursor | None = None,
    seconds: float = SECONDS,
    dead_letters: int = LETTERS,
    monotonic: Callable[[], float] = time.monotonic,
) -> SearchResult:
    """The dead letters that match, as a listing shows them; ends at `limit` found, after `seconds`, or `dead letters` seen.

    The store is borrowed for a slice at a time, so that nobody who writes waits for a search.
    """
    begun, rest = monotonic(), replace(where, body=None)
    found: list[str] = []
    looked, complete = 0, False
    while True:
        asked = min(_AT_ONCE, dead_letters - looked)
        rows = _slice(store, rest, after, asked)
        for row, body in _with_bodies(store, rows):
            looked, after = looked + 1, PageCursor(row["failed_at"], row["message_id"])
            if where.body is None or _holds(where.body, row, body):
                found.append(row["message_id"])
            if len(found) == limit:
                break
        else:
            complete = len(rows) < asked
        if complete or len(found) == limit or looked >= dead_letters or monotonic() - begun > seconds:
            listed = _listed(store, found)
            return SearchResult(listed, looked, max(of, looked), complete, None if complete else after)


def _holds(wanted: str, row: Mapping[str, Any], body: Mapping[str, Any] | None) -> bool:
    value, headers = (body["value"], codec.read_headers(body["headers"])) if body else (None, ())
    return holds(wanted, row["key"], value, headers)


def _listed(store: Store, ids: Sequence[str]) -> tuple[DeadLetter, ...]:
    with store.borrow(limit=_PATIENCE) as connection:
        rows = fetch(connection, "dead_letters", codec.LETTER_COLUMNS, ids)
    return tuple(codec.read_dead_letter(rows[message_id]) for message_id in ids if message_id in rows)


def frozen(where: DeadLetterFilter, found: SearchResult) -> DeadLetterFilter:
    """The selection of exactly these dead letters; ConfigError where the search did not see everything."""
    if not found.complete:
        raise ConfigError(
            f"Nothing was changed, because the search in bodies did not see everything. {found.text}",
            fix="Narrow the selection (topic, group, since, until), so that the search can look at all of it.",
        )
    ids = tuple(dead_letter.message_id for dead_letter in found.dead_letters)
    return replace(where, body=None, ids=ids or _NOTHING)


def _slice(
    store: Store, where: DeadLetterFilter, after: PageCursor | None, count: int
) -> list[dict[str, Any]]:
    sql, parameters = listing(where, ", ".join(_NEEDED), limit=count, after=after)
    with store.borrow(limit=_PATIENCE) as connection:
        rows = connection.execute(sql, parameters).fetchall()
    return [dict(zip(_NEEDED, row, strict=True)) for row in rows]


def _with_bodies(
    store: Store, rows: Sequence[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Each row with its body, few large values at once."""
    for some in _by_size(rows):
        with store.borrow(limit=_PATIENCE) as connection:
            ids = [row["message_id"] for row in some]
            bodies = fetch(connection, "dead_letter_bodies", ("message_id", "value", "headers"), ids)
        for row in some:
            yield row, bodies.get(row["message_id"])


def _by_size(rows: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    some: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        if len(some) == _BODIES_AT_ONCE or (some and size + (row["value_size"] or 0) > _BYTES_AT_ONCE):
            yield some
            some, size = [], 0
        some.append(row)
        size += row["value_size"] or 0
    if some:
        yield some
