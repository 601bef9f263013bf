"""List dead letters page by page, without bodies, the latest failure first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from producer_core.dlq.filter import DeadLetterFilter
from producer_core.errors import ConfigError
from producer_core.events import DeadLetter

_LISTED = (
    "SELECT {what} FROM dead_letters WHERE {where} ORDER BY failed_at DESC, message_id DESC LIMIT ? OFFSET ?"
)
_AFTER = "failed_at <= ? AND (failed_at < ? OR message_id < ?)"


@dataclass(frozen=True, slots=True)
class PageCursor:
    """The last dead letter of a page. Finding the next page takes the same time anywhere in the list.

    Dead letters that are added while an operator pages through the list come before the first page and shift nothing.
    """

    failed_at: float
    message_id: str

    def __str__(self) -> str:
        """Return the cursor as text for a URL or a command."""
        return f"{self.failed_at!r}/{self.message_id}"

    @classmethod
    def parse(cls, text: str) -> PageCursor:
        """Parse the result of `str`."""
        moment, _, message_id = text.partition("/")
        try:
            return cls(float(moment), message_id)
        except ValueError as error:
            raise ConfigError(
                f"{text!r} is not a page cursor.", fix="Use `next` of the previous page."
            ) from error


@dataclass(frozen=True)
class Page:
    """One page; `next` is None on the last page."""

    dead_letters: tuple[DeadLetter, ...]
    next: PageCursor | None


def listing(
    where: DeadLetterFilter, what: str, *, limit: int, offset: int = 0, after: PageCursor | None = None
) -> tuple[str, list[Any]]:
    """Return the query for a page and its parameters."""
    condition, parameters = where.where()
    if after is not None:
        condition = f"{condition} AND {_AFTER}"
        parameters = [*parameters, after.failed_at, after.failed_at, after.message_id]
    return _LISTED.format(what=what, where=condition), [*parameters, limit, offset]
