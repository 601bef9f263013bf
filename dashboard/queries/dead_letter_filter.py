"""What a person looks at among the dead letters: the filter, the place in the list, the dead letter that is open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from producer_core.dashboard.queries.view import RANGES, step_of
from producer_core.dlq import DeadLetterFilter, PageCursor
from producer_core.errors import ConfigError

_WAITING = DeadLetterFilter()


@dataclass(frozen=True)
class DeadLetterQuery:
    """`span` is a name of RANGES that follows the clock; without it the filter's own since and until count.

    All of it stands in the address of the page: the filter as `to_query` writes it, `range`, `after`, `dead letter`.
    """

    where: DeadLetterFilter = _WAITING
    span: str | None = None
    after: PageCursor | None = None
    dead_letter: str | None = None

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> DeadLetterQuery:
        """What an address says; ConfigError where it makes no sense. `producer` is how other pages say producer_id."""
        where = DeadLetterFilter.from_query({"producer_id": query.get("producer", ""), **query})
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
        """The filter as of now. The beginning moves on in steps, so that what was read a moment ago is still right."""
        if self.span is None:
            return self.where
        length = RANGES[self.span]
        step = step_of(length)
        return replace(self.where, since=float((int(now) - length) // step * step))

    def narrowed(self, **changes: object) -> DeadLetterQuery:
        """With another filter: from the first page on, and what was open stays open."""
        return replace(self, where=replace(self.where, **changes), after=None)  # type: ignore[arg-type]  # its fields

    @property
    def filter(self) -> tuple[DeadLetterFilter, str | None]:
        """What is matched, whatever page of the list or dead letter is open."""
        return self.where, self.span

    @property
    def narrow(self) -> bool:
        """Whether it is anything but all that wait."""
        return self.where != _WAITING or self.span is not None


OURS = frozenset(field.name for field in fields(DeadLetterFilter)) | {"range", "after", "letter", "producer"}
"""The names in the address that mean something here; others are left alone."""


def dead_letter_query(query: Mapping[str, str]) -> tuple[DeadLetterQuery, str | None]:
    """What an address asks for, and what is wrong with it: then everything that waits is shown."""
    try:
        return DeadLetterQuery.from_query(query), None
    except ConfigError as error:
        return DeadLetterQuery(), str(error)
