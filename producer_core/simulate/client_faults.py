"""Inject faults on the client side of the user's Kafka cluster: reject, delay or hold messages before they are
sent."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError

from producer_core.config import ClientConfig
from producer_core.delivery.delivery import Delivery, Report
from producer_core.delivery.report_batch import ReportBatch
from producer_core.delivery.transport import (
    ClientQueueFull,
    ClientRefused,
    KafkaTransport,
    Transport,
    TransportFactory,
    TransportListener,
)
from producer_core.kafka.compaction import MissingRecord, NewerRecords
from producer_core.kafka.record_lookup import ProbeResult
from producer_core.simulate.faults import Fault, OutageFault, RejectFault, SlowFault

_MAX_HELD = 20_000
_RETRY_AFTER = 0.05


class ClientFaults:
    """Holds the active faults; `transport` makes transports that apply them."""

    def __init__(self, inner: TransportFactory = KafkaTransport, *, rng: random.Random | None = None) -> None:
        self._inner = inner
        self._rng = rng or random.Random()
        self._active: frozenset[Fault] = frozenset()

    def apply(self, faults: frozenset[Fault]) -> None:
        self._active = faults

    def transport(self, config: ClientConfig, listener: TransportListener) -> Transport:
        listener_with_delay = _DelayingListener(listener)
        return FaultyTransport(self._inner(config, listener_with_delay), listener_with_delay, self)

    def rejection_code(self, topic: str) -> int | None:
        """Return the code with which this message is rejected, or None."""
        for fault in self._active:
            if isinstance(fault, RejectFault) and fault.topic == topic and self._rng.random() < fault.share:
                return int(getattr(KafkaError, fault.code))
        return None

    @property
    def delay(self) -> float:
        return max((fault.seconds for fault in self._active if isinstance(fault, SlowFault)), default=0.0)

    @property
    def down(self) -> bool:
        return any(isinstance(fault, OutageFault) for fault in self._active)


class FaultyTransport:
    """Wraps another transport. Held messages keep their order; their reports include the time they were held."""

    def __init__(
        self,
        inner: Transport,
        listener: _DelayingListener,
        faults: ClientFaults,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner = inner
        self._listener = listener
        self._faults = faults
        self._clock = clock
        self._changed = threading.Condition()  # guards _held and _stopping
        self._held: deque[tuple[float, float, Delivery]] = deque()  # due, held since, message
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="client-faults", daemon=True)

    @property
    def settles_journal(self) -> bool:
        return self._inner.settles_journal

    @property
    def ended(self) -> bool:
        return self._inner.ended

    def start(self) -> None:
        self._inner.start()
        self._thread.start()

    def yield_to_poller(self) -> None:
        self._inner.yield_to_poller()

    def flush_soon(self) -> None:
        self._inner.flush_soon()

    def produce(self, delivery: Delivery) -> None:
        code = self._faults.rejection_code(delivery.topic)
        if code is not None:
            raise ClientRefused(KafkaError(code, "rejected by the demo's fault schedule, before it was sent"))
        with self._changed:
            delay = self._faults.delay
            if not self._held and not delay and not self._faults.down:
                self._inner.produce(delivery)
                return
            if len(self._held) >= _MAX_HELD:
                raise ClientQueueFull
            now = self._clock()
            self._held.append((now + delay, now, delivery))
            self._changed.notify()

    def outstanding(self) -> int:
        return self._inner.outstanding() + len(self._held)

    def cluster_id(self, topic: str | None, timeout: float) -> str | None:
        return self._inner.cluster_id(topic, timeout)

    def find_records(
        self, topic: str, message_ids: Sequence[str], **bounds: Any
    ) -> Mapping[str, ProbeResult]:
        return self._inner.find_records(topic, message_ids, **bounds)

    def newer_records(self, topic: str, missing: Sequence[MissingRecord], **bounds: Any) -> NewerRecords:
        return self._inner.newer_records(topic, missing, **bounds)

    def purge(self) -> None:
        """Report held messages as purged from the queue: they were never sent."""
        with self._changed:
            held, self._held = list(self._held), deque()
        self._listener.reports(
            [(delivery, KafkaError(KafkaError._PURGE_QUEUE), None) for _, _, delivery in held]
        )
        self._inner.purge()

    def stop(self, timeout: float = 5.0) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(5)
        self._inner.stop()

    def _run(self) -> None:
        with self._changed:
            while not self._stopping:
                wait = self._until_due()
                if wait is None or wait > 0:
                    self._changed.wait(wait)
                elif not self._release(*self._held.popleft()):
                    self._changed.wait(_RETRY_AFTER)

    def _until_due(self) -> float | None:
        """Return the seconds until the first held message is due; None when none is held."""
        if not self._held:
            return None
        if self._faults.down:
            return _RETRY_AFTER
        return self._held[0][0] - self._clock()

    def _release(self, due: float, since: float, delivery: Delivery) -> bool:
        self._listener.waits[delivery.id] = self._clock() - since  # before its report can arrive
        try:
            self._inner.produce(delivery)
        except ClientQueueFull:
            self._held.appendleft((due, since, delivery))
            return False
        except ClientRefused as refusal:
            self._listener.reports([(delivery, refusal.error, None)])
        return True


class _DelayingListener:
    """Adds the time that messages were held to the latencies in their reports."""

    def __init__(self, listener: TransportListener) -> None:
        self._listener = listener
        self.statistics, self.connection_error = listener.statistics, listener.connection_error
        self.fatal, self.notice = listener.fatal, listener.notice
        self.waits: dict[bytes, float] = {}

    def reports(self, batch: Sequence[Report]) -> None:
        if self.waits:
            rows: list[Any] = []
            for row in ReportBatch.of(batch).each_row():
                rows += _delayed(row, self.waits.pop(row[0].id, 0.0))
            batch = ReportBatch(rows)
        self._listener.reports(batch)


def _delayed(row: tuple[Any, ...], waited: float) -> tuple[Any, ...]:
    """Return a row of `ReportBatch` with the hold time added to its latency."""
    delivery, report, partition, offset, latency = row
    if report is None:
        return delivery, None, partition, offset, None if latency is None else latency + waited
    error, message = report
    delayed = None if message is None else _DelayedMessage(message, waited)
    return delivery, (error, delayed), partition, offset, latency


class _DelayedMessage:
    """A delivery report's message with the hold time added to its latency."""

    def __init__(self, message: Any, waited: float) -> None:
        self._message = message
        self._waited = waited

    def latency(self) -> float | None:
        found = self._message.latency()
        return None if found is None else found + self._waited

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)
