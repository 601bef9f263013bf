"""Take the statistics since the previous call as batches for the store and the telemetry topic."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter, sub

from producer_core.events import Notice
from producer_core.metrics.ack_ledger import AckLedger
from producer_core.metrics.batch import Batch, ErrorRow, LatencyRow, ProducerRow, StatisticsRow
from producer_core.metrics.batch_size import split
from producer_core.metrics.client_stats import ClientStats
from producer_core.metrics.counters import Metrics, Snapshot, TopicCounters

_NO_COUNTS = TopicCounters()
_counts_of = attrgetter(*StatisticsRow._fields[5:])


class StatsWindow:
    """Takes the difference of two snapshots, so that nothing is counted twice. `take` is called by one thread.

    `describe` returns the producer's row as seen at a time, `pending` its pending messages by topic, `number` the sequence
    of a batch. The time is before the snapshot: a batch seen at t contains every count until t.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        describe: Callable[[float], ProducerRow],
        pending: Callable[[], Counter[str]],
        ledger: AckLedger | None = None,
        number: Callable[[], int] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.client, self.ledger, self.clock = ClientStats(), ledger, clock
        self._metrics = metrics
        self._describe, self._pending = describe, pending
        self._number = number or itertools.count().__next__
        self._last = Snapshot({}, {}, ())
        self._last_pending: Counter[str] = Counter()

    def take(self, notices: tuple[Notice, ...]) -> list[Batch]:
        """Return the statistics since the previous call and the notices, as one batch, or several if one is too large."""
        first, *rest = split(self._batch(notices))
        return [first, *(replace(part, sequence=self._number()) for part in rest)]

    def _batch(self, notices: tuple[Notice, ...]) -> Batch:
        # First: a reader waits for a heartbeat to know that earlier messages are counted.
        seen_at = self.clock()
        snapshot, pending = self._metrics.snapshot(), self._pending()
        ledger, given_up = ((), ()) if self.ledger is None else self.ledger.take()
        row = self._describe(seen_at)  # last, because the cluster id is known once a message is acknowledged
        where = (int(seen_at), row.cluster_id, row.producer_id)
        clients, brokers = self.client.take(where)
        batch = Batch(
            row.producer_id,
            self._number(),
            statistics=tuple(_statistics(where, self._last, snapshot, self._last_pending, pending)),
            latencies=tuple(_latencies(where, self._last, snapshot)),
            errors=tuple(_errors(where, self._last, snapshot)),
            producer=row,
            notices=notices,
            client_statistics=clients,
            broker_statistics=brokers,
            ledger=ledger,
            given_up=given_up,
        )
        self._last, self._last_pending = snapshot, pending
        return batch


def _statistics(
    where: tuple[int, str, str],
    before: Snapshot,
    after: Snapshot,
    pending_before: Counter[str],
    pending: Counter[str],
) -> list[StatisticsRow]:
    rows = []
    for topic in sorted({*after.topics, *pending, *pending_before}):
        old, new = before.topics.get(topic, _NO_COUNTS), after.topics.get(topic, _NO_COUNTS)
        if old is new and pending[topic] == pending_before[topic]:
            continue
        counts = list(map(sub, _counts_of(new), _counts_of(old)))
        accepted = counts[0] + counts[1] + pending[topic] - pending_before[topic]
        if accepted or any(counts):
            rows.append(StatisticsRow(*where, topic, accepted, *counts))
    return rows


def _latencies(where: tuple[int, str, str], before: Snapshot, after: Snapshot) -> list[LatencyRow]:
    rows = []
    for topic, counters in after.topics.items():
        if counters is (known := before.topics.get(topic)):
            continue
        old = {} if known is None else known.histogram.counts
        for bucket, count in counters.histogram.counts.items():
            if new := count - old.get(bucket, 0):  # a Counter calls Python code for a missing key
                rows.append(LatencyRow(*where, topic, bucket, new))
    return rows


def _errors(where: tuple[int, str, str], before: Snapshot, after: Snapshot) -> list[ErrorRow]:
    return [
        ErrorRow(*where, topic, code, kind, count - before.errors.get((topic, code, kind), 0))
        for (topic, code, kind), count in after.errors.items()
        if count > before.errors.get((topic, code, kind), 0)
    ]
