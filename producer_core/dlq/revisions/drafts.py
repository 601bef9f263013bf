"""Drafts of edits: texts of a page's form, kept in the store until the edit is saved or discarded."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING

from producer_core.errors import ConfigError
from producer_core.store import merge

if TYPE_CHECKING:
    from producer_core.store import Store

MAX_TEXT = 1 << 20
"""Characters of a draft. A page edits no longer values; the command line does."""
_COLUMNS = (
    "message_id", "who", "base", "value", "headers", "key", "reason", "saved_at", "client", "report",
)  # fmt: skip
_FIND = f"SELECT {', '.join(_COLUMNS[2:])} FROM edit_drafts WHERE message_id = ? AND who = ?"
_OTHERS = "SELECT who, saved_at FROM edit_drafts WHERE message_id = ? AND who <> ? ORDER BY saved_at DESC"
_DELETE = "DELETE FROM edit_drafts WHERE message_id = ? AND who = ?"


@dataclass(frozen=True, slots=True)
class Draft:
    """The texts of one user's form. `base` is the number of the revision that the form started from, 0 for the original.

    `client` and `report` identify the report of a browser page that the texts come from.
    """

    base: int
    value: str
    headers: str
    key: str = ""
    reason: str = ""
    saved_at: float = 0.0
    client: str = ""
    report: int = 0


class Drafts:
    """The drafts of one user in a store. They outlive a session, a browser and the server."""

    def __init__(self, store: Store, who: str, *, clock: Callable[[], float] = time.time) -> None:
        self._store, self._who, self._clock = store, who, clock

    def find(self, message_id: str) -> Draft | None:
        """Return the user's draft for a dead letter, or None."""
        with self._store.borrow() as connection:
            rows = connection.execute(_FIND, [message_id, self._who]).fetchall()
        return Draft(*rows[0]) if rows else None

    def others(self, message_id: str) -> list[tuple[str, float]]:
        """Return who else has a draft for this dead letter, and when it was saved, the latest first."""
        with self._store.borrow() as connection:
            rows = connection.execute(_OTHERS, [message_id, self._who]).fetchall()
        return [(who, saved_at) for who, saved_at in rows]

    def save(self, message_id: str, draft: Draft) -> Draft:
        """Save the draft instead of an earlier one. Raise ConfigError if it is too long."""
        if len(draft.value) + len(draft.headers) > MAX_TEXT:
            raise ConfigError(
                f"The draft has more than {MAX_TEXT:,} characters, so it was not saved.",
                fix="Use producer-core dlq edit for values of this size.",
            )
        saved = replace(draft, saved_at=self._clock())
        row = (message_id, self._who, *astuple(saved))
        with self._store.borrow(write=True) as connection:
            connection.execute(_DELETE, [message_id, self._who])
            merge.insert(connection, "edit_drafts", _COLUMNS, [row])
        return saved

    def discard(self, message_id: str) -> None:
        """Delete the user's draft for a dead letter."""
        with self._store.borrow(write=True) as connection:
            connection.execute(_DELETE, [message_id, self._who])
