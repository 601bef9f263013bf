"""Define the state of the dead letters page that its URL holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from producer_core.dashboard.queries.view import NO_APPLICATION, RANGES, step_of
from producer_core.dlq import DeadLetterFilter, PageCursor
from producer_core.errors import ConfigError

_PENDING = DeadLetterFilter()


@dataclass(frozen=True)
class DeadLetterQuery:
    """Holds the filter, the position in the list, and the open dead letter.

    `span` is a relative range, a name of RANGES; without it the filter's own `since` and `until` apply. The page
    URL carries the filter as `to_query` writes it, the range, the position, and the id of the open dead letter.
    """

    where: DeadLetterFilter = _PENDING
    span: str | None = None
    after: PageCursor | None = None
    dead_letter: str | None = None

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> DeadLetterQuery:
        """Parse a URL; raise ConfigError where it is malformed. Other pages name filters differently."""
        where = DeadLetterFilter.from_query({**_of_other_page(query), **query})
        if query.get("application") == NO_APPLICATION:
            where = replace(where, application="")
        span = query.get("range")
        if span not in RANGES:
            span = None
        if span is not None:
            where = replace(where, since=None, until=None)
        after = PageCursor.parse(query["after"]) if query.get("after") else None
        return cls(where, span, after, query.get("letter") or None)

    def to_query(self) -> dict[str, str]:
        known = {"range": self.span, "after": self.after and str(self.after), "letter": self.dead_letter}
        return self.where.to_query() | {name: text for name, text in known.items() if text}

    def at(self, now: float) -> DeadLetterFilter:
        """Return the filter as of now; the beginning moves in steps, so that a recent read stays valid."""
        if self.span is None:
            return self.where
        length = RANGES[self.span]
        step = step_of(length)
        return replace(self.where, since=float((int(now) - length) // step * step))

    def narrowed(self, **changes: object) -> DeadLetterQuery:
        """Return the query with a changed filter, at the first page, with the same dead letter open."""
        return replace(self, where=replace(self.where, **changes), after=None)  # type: ignore[arg-type]  # its fields

    @property
    def filter(self) -> tuple[DeadLetterFilter, str | None]:
        """Return the filter and the range, which do not depend on the open page or dead letter."""
        return self.where, self.span

    @property
    def narrow(self) -> bool:
        """Return whether the query differs from all pending dead letters."""
        return self.where != _PENDING or self.span is not None


FILTER_PARAMETERS = frozenset(field.name for field in fields(DeadLetterFilter)) | {
    "range",
    "after",
    "letter",
    "producer",
    "cluster",
}
"""The URL parameters that belong to this page; others are kept unchanged."""


def _of_other_page(query: Mapping[str, str]) -> dict[str, str]:
    """Return the filters of other pages' URLs by the names of this page."""
    return {"producer_id": query.get("producer", ""), "cluster_id": query.get("cluster", "")}


def dead_letter_query(query: Mapping[str, str]) -> tuple[DeadLetterQuery, str | None]:
    """Return the query of a URL and its error; with an error the query is all pending dead letters."""
    try:
        return DeadLetterQuery.from_query(query), None
    except ConfigError as error:
        return DeadLetterQuery(), str(error)
