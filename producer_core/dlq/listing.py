"""A page of a listing: dead letters without their bodies, the latest death first, and where the next page begins."""

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
    """The last dead letter of a page. The page after it is found in the same time, however far down the list it is.

    A dead letter that dies while somebody turns pages stands before the first page and moves nothing.
    """

    failed_at: float
    message_id: str

    def __str__(self) -> str:
        """For a URL or a command."""
        return f"{self.failed_at!r}/{self.message_id}"

    @classmethod
    def parse(cls, text: str) -> PageCursor:
        """What `str` wrote."""
        moment, _, message_id = text.partition("/")
        try:
            return cls(float(moment), message_id)
        except ValueError as error:
            raise ConfigError(
                f"{text!r} is no place in a list.", fix="Take `next` of the page before."
            ) from error


@dataclass(frozen=True)
class Page:
    """`next` is None when there is nothing after these."""

    dead_letters: tuple[DeadLetter, ...]
    next: PageCursor | None


def listing(
    where: DeadLetterFilter, what: str, *, limit: int, offset: int = 0, after: PageCursor | None = None
) -> tuple[str, list[Any]]:
    """The query for a page, and its parameters."""
    condition, parameters = where.where()
    if after is not None:
        condition = f"{condition} AND {_AFTER}"
        parameters = [*parameters, after.failed_at, after.failed_at, after.message_id]
    return _LISTED.format(what=what, where=condition), [*parameters, limit, offset]
