"""Write the file with which the dead letters of a raw bundle are imported."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from producer_core._internal.plural import plural
from producer_core._internal.work_folder import WorkFolder
from producer_core.diagnostics.incident.manifest import DEAD_LETTERS
from producer_core.diagnostics.incident.window import IncidentWindow
from producer_core.dlq import DeadLetterFilter, files, lookup
from producer_core.dlq.files.exporter import EXPORTED
from producer_core.errors import TransferError
from producer_core.store import Store, generation, safe_verdicts

_IDS = 1000
_TIMEOUT = 60.0
_RUNNING = "SELECT count(*) FROM operations WHERE state = 'running'"
_SIZE = "SELECT coalesce(sum(value_size), 0) + 1000 * count(*) FROM dead_letters WHERE {where}"
_REVISIONS = """
SELECT coalesce(sum(coalesce(octet_length(value), 0)), 0) + 1000 * count(*) FROM dead_letter_revisions"""
_MATCHES = "SELECT message_id FROM dead_letters WHERE {where} ORDER BY message_id"


class RawDeadLetters:
    """The dead letters of a store whose last failure is in the range of an incident.

    Raise TransferError while a replay is running: it would send records that the other store may send as well.
    """

    def __init__(self, store: Store, window: IncidentWindow) -> None:
        self._store = store
        self._ids: list[str] = []
        self.where = in_range(window)
        self._check_replays()

    def write(self, whole: Path, work: WorkFolder, *, who: str, origin: str) -> None:
        """Write the file and its manifest to the folder, from a copy of the store, which this changes."""
        generation.adopt(whole, self._store.path)
        with contextlib.closing(Store.open(whole, create=False)) as copy:
            condition, parameters = self.where.where()
            with copy.borrow(limit=_TIMEOUT) as connection:
                size = connection.execute(_SIZE.format(where=condition), parameters).fetchall()[0][0]
                size += connection.execute(_REVISIONS).fetchall()[0][0]
                found = connection.execute(_MATCHES.format(where=condition), parameters).fetchall()
            self._ids = [message_id for (message_id,) in found]
            work.ensure_free(size)
            target = work.path / DEAD_LETTERS
            files.export(copy, self.where, target, who=who, origin=origin, masked=False)

    def revoke_safe_verdicts(self) -> None:
        """Another store can import the bundle and replay its dead letters, so none here is safe to resend any more.

        Raise TransferError if a replay has started since.
        """
        self._check_replays()
        for ids in self._slices():
            with self._store.borrow(write=True, timeout=_TIMEOUT) as connection:
                safe_verdicts.revoke(connection, EXPORTED, *lookup.id_in(ids))

    def _check_replays(self) -> None:
        with self._store.borrow() as connection:
            running = connection.execute(_RUNNING).fetchall()[0][0]
        if running:
            raise TransferError(
                f"{plural(running, 'replay')} of this store {'is' if running == 1 else 'are'} running.",
                fix="Wait for the end, or cancel: producer-core replay cancel.",
            )

    def _slices(self) -> Iterator[list[str]]:
        for first in range(0, len(self._ids), _IDS):
            yield self._ids[first : first + _IDS]


def in_range(window: IncidentWindow) -> DeadLetterFilter:
    """Return the filter for the dead letters that a raw bundle can import."""
    return DeadLetterFilter(state=None, since=window.since, until=window.until)
