"""Queue batches for the store: bounded in memory, and on disk until the store has them."""

from __future__ import annotations

import functools
import itertools
import time
from collections import deque
from collections.abc import Sequence

from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.metrics.batch import Batch
from producer_core.metrics.batch_size import sum_by_minute
from producer_core.metrics.statistics_log import StatisticsLog
from producer_core.metrics.store_access import BatchStore

logger = queued_logger(__name__)

_TRANSACTION_BATCHES = 60
"""Batches that are merged in one transaction."""
_MAX_BATCHES = 300
"""Batches that may wait for the store."""
_MAX_LEDGER = 4_000_000
"""Acknowledgements whose ledger rows may wait for the store: about 64 MB."""
_MAX_LOG_BYTES = 8_000_000
"""Bytes of the log from which it is replaced, once it is twice the size of the batches in memory."""
_LOG_RETRY_S = 10.0
"""Seconds between two attempts to write a log that the disk did not take."""


class BatchQueue:
    """Batches that are not in the store yet. Used by the recorder's thread; any thread may read the attributes."""

    def __init__(self, log: StatisticsLog | None = None, *, keep_ledger: bool = False) -> None:
        self._log = log
        self._keep_ledger = keep_ledger
        self._batches: deque[Batch] = deque()
        self._unlogged: list[Batch] = []
        self._log_failed_at: float | None = None
        self._replaced_size = 0
        self.ledger_lost = 0  # acknowledgements whose rows had no room while the store was not available

    def add(self, batch: Batch) -> Batch:
        """Append a batch, without its ledger unless one is kept, and return it."""
        added = batch if self._keep_ledger else batch.without_ledger()
        self._batches.append(added)
        if self._log is not None:
            self._unlogged.append(added)
        return added

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def idle(self) -> bool:
        """Whether no batch counts a message."""
        return not any(batch.statistics or batch.latencies for batch in self._batches)

    @property
    def in_memory_only(self) -> bool:
        """Whether the end of the process would lose batches."""
        incomplete = self._log is None or self._log_failed_at is not None or bool(self._unlogged)
        return bool(self._batches) and incomplete

    def keep(self) -> None:
        """Write the new batches to the log. Heartbeats are not worth a write: they follow with the next other batch."""
        if self._log is None:
            return
        if len(self._unlogged) < _MAX_BATCHES and all(batch.is_heartbeat for batch in self._unlogged):
            return
        if self._log_failed_at is not None and time.monotonic() - self._log_failed_at < _LOG_RETRY_S:
            self._unlogged.clear()  # the next attempt writes all batches
            return
        try:
            self._write(self._log)
        except (OSError, TypeError) as error:  # TypeError: a value has no JSON form
            if self._log_failed_at is None:
                logger.warning(
                    **with_fields(
                        "statistics are in memory only", reason=getattr(error, "strerror", None) or error
                    )
                )
            self._log_failed_at = time.monotonic()
            self._unlogged.clear()  # the next attempt writes all batches
        else:
            self._log_failed_at = None

    def _write(self, log: StatisticsLog) -> None:
        if self._log_failed_at is not None or log.size > max(_MAX_LOG_BYTES, 2 * self._replaced_size):
            log.replace(self._batches)
            self._replaced_size = log.size
        else:
            log.append(self._unlogged)
        self._unlogged.clear()

    def flush(self, store: BatchStore) -> None:
        """Write all batches to the store."""
        while batches := tuple(itertools.islice(self._batches, _TRANSACTION_BATCHES)):
            store.append(*_reduced(batches, unread=not store.recently_read()))
            for _ in batches:
                self._batches.popleft()
        self._unlogged.clear()
        self._log_failed_at = None
        if self._log is not None:
            self._log.clear()

    def limit(self) -> None:
        """Sum the two oldest batches beyond the limit. Their counts are kept; only their resolution is reduced."""
        if len(self._batches) > _MAX_BATCHES:
            first, second = self._batches.popleft(), self._batches.popleft()
            self._batches.appendleft(sum_by_minute(first, second))
        if self._keep_ledger:
            self._limit_ledger()

    def close(self) -> None:
        """Release the log."""
        if self._log is not None:
            self._log.close()

    def _limit_ledger(self) -> None:
        """Drop and count the oldest ledger rows beyond the limit, an eighth of the limit at once to keep the notices few."""
        excess = sum(batch.acknowledgements for batch in self._batches) - _MAX_LEDGER
        if excess <= 0:
            return
        target = self.ledger_lost + excess + _MAX_LEDGER // 8
        for index, batch in enumerate(self._batches):
            if batch.ledger and self.ledger_lost < target:
                self._batches[index] = rest = batch.drop_ledger_rows(target - self.ledger_lost)
                self.ledger_lost += batch.acknowledgements - rest.acknowledgements


def _reduced(batches: Sequence[Batch], *, unread: bool) -> Sequence[Batch]:
    """Return one batch for heartbeats that are written together while the store is not read, or else all batches."""
    if unread and len(batches) > 1 and all(batch.is_heartbeat for batch in batches):
        return (functools.reduce(sum_by_minute, batches),)
    return batches
