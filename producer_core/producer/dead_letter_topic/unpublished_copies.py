"""Keep copies of stored dead letters until they are published, because the disk of their store may go away."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core._internal.read_activity import unattended
from producer_core.dlq import DeadLetters, lookup
from producer_core.dlq.published_verdict import without_safe_verdict
from producer_core.errors import StoreError
from producer_core.store import paths

if TYPE_CHECKING:
    from producer_core.events import DeadLetter
    from producer_core.store import Store

logger = queued_logger(__name__)

_BYTES = 64 * 1024 * 1024
_IDS_LIMIT = 100_000
"""Ids of dead letters without a copy, of which a loss is counted."""
_LOOKUP_ROWS = 2_000
_TO_PUBLISH = ("dead", "replaying")
_REASON = "The store was replaced or deleted before they were published."


class UnpublishedCopies:
    """Keeps up to `limit` dead letters of this process, and at most 64 MiB of keys and values. Of further ones it keeps the id.

    A dead letter that its store no longer has is added again or, without a copy, counted in `lost`. `spilled` returns
    whether some may be in the spill file and not in the store yet. The recorder's thread calls `add`, and the publisher's
    thread the rest; `close` and `lost` are for later.
    """

    def __init__(self, store: Callable[[], Store | None], *, spilled: Callable[[], bool], limit: int) -> None:
        self._store = store
        self._spilled = spilled
        self._limit = limit
        self._lock = threading.Lock()  # guards the four fields below
        self._copies: dict[str, DeadLetter] = {}
        self._bytes = 0
        self._ids: set[str] = set()  # of those without a copy
        self._published: set[str] = (
            set()
        )  # copies that are on their topic, and that a replaced store may lack
        self.lost = 0

    def add(self, dead_letters: Iterable[DeadLetter]) -> None:
        """Keep dead letters that are on disk."""
        with self._lock:
            for one in dead_letters:
                self._forget(one.message_id)
                if len(self._copies) < self._limit and self._bytes + _size(one) <= _BYTES:
                    self._copies[one.message_id] = one
                    self._bytes += _size(one)
                elif len(self._ids) < _IDS_LIMIT:
                    self._ids.add(one.message_id)

    def published(self, message_ids: Iterable[str]) -> None:
        """Tell that these dead letters are on their topic, and that the store does not know it yet."""
        with self._lock:
            self._published.update(one for one in message_ids if one in self._copies)
            self._ids.difference_update(message_ids)

    def forget(self, message_ids: Iterable[str]) -> None:
        """Forget dead letters that need no publication any more: the store has their outcomes."""
        with self._lock:
            for message_id in message_ids:
                self._forget(message_id)

    def _forget(self, message_id: str) -> None:
        known = self._copies.pop(message_id, None)
        self._bytes -= 0 if known is None else _size(known)
        self._ids.discard(message_id)
        self._published.discard(message_id)

    @property
    def without_file(self) -> bool:
        """Whether the store's file is gone, so that only the copies are left."""
        store = self._store()
        return store is not None and _is_gone(store)

    def unpublished(self) -> list[DeadLetter]:
        with self._lock:
            return [one for one in self._copies.values() if one.message_id not in self._published]

    def restore(self) -> list[DeadLetter]:
        """Add the dead letters again that the store lacks because its file was replaced. Return them.

        They have no safe verdict: an operator may have replayed them from the earlier file, or a reader from their topic.
        """
        with self._lock:
            ids = [*self._copies, *self._ids]  # first: what is added later may be in the spill file only
        store = self._store()
        if not ids or store is None or self._spilled():
            return []
        missing = self._missing(store, ids)
        with self._lock:
            restored = [without_safe_verdict(self._copies[one]) for one in missing if one in self._copies]
        if restored:
            DeadLetters(store).add(restored)
            logger.warning(**with_fields("dead letters stored again", count=len(restored), reason=_REASON))
        self._lose(missing - {one.message_id for one in restored})
        return restored

    def _missing(self, store: Store, message_ids: Sequence[str]) -> set[str]:
        """Return the ids that the store lacks. Forget those that were archived, purged or replayed."""
        found: dict[str, str] = {}
        for first in range(0, len(message_ids), _LOOKUP_ROWS):
            ids = message_ids[first : first + _LOOKUP_ROWS]
            with store.borrow() as connection:
                found.update(lookup.fetch_rows(connection, "dead_letters", ["message_id", "state"], ids))
        self.forget(one for one, state in found.items() if state not in _TO_PUBLISH)
        return set(message_ids) - found.keys()

    def close(self) -> None:
        """Count what neither the store nor a topic has. Call it after the last publication."""
        with contextlib.suppress(StoreError), unattended():
            self.restore()
        if self.without_file:
            with self._lock:
                left = (self._copies.keys() - self._published) | self._ids
            self._lose(left)

    def _lose(self, message_ids: set[str]) -> None:
        if message_ids:
            self.forget(message_ids)
            self.lost += len(message_ids)
            logger.critical(**with_fields("dead letters lost", count=len(message_ids), reason=_REASON))


def _is_gone(store: Store) -> bool:
    """Whether the store has no file. A file that cannot be read may have the dead letters."""
    try:
        return not paths.has_content(store.path)
    except OSError:
        return False


def _size(dead_letter: DeadLetter) -> int:
    return len(dead_letter.value or b"") + len(dead_letter.key or b"")
