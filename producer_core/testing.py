"""Test doubles for applications and for our own tests: an in-memory transport and a manual clock."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError

from producer_core.config import ClientConfig
from producer_core.delivery.delivery import Delivery, DeliveryState
from producer_core.delivery.report_batch import KnownOffset
from producer_core.delivery.transport import ClientQueueFull, ClientRefused, TransportListener
from producer_core.kafka.compaction import NONE_NEWER, MissingRecord, NewerRecords
from producer_core.kafka.newer_keys import SequenceLookup
from producer_core.kafka.record_lookup import ProbeResult
from producer_core.messages import id_text

Script = Callable[[Delivery], "int | str | None"]
"""Returns a message's outcome: None acknowledges it, a code fails it, "hold" keeps it in flight."""


class FakeClock:
    """A clock that moves only with `advance`. Call it for the time in seconds."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass(frozen=True, slots=True)
class FakeMessage(KnownOffset):
    """A message as a delivery report carries it, with the methods of confluent_kafka's Message."""

    delivery: Delivery

    def topic(self) -> str:
        return self.delivery.topic

    def timestamp(self) -> tuple[int, int]:
        return (1, self.delivery.placement.timestamp_ms)


class InMemoryTransport:
    """Simulates a cluster in memory: one partition per topic, scripted outcomes, reports on a thread of its own.

    Pass `transport=InMemoryTransport.factory(...)` to ReliableKafkaProducer. `log` holds the appended messages.
    A code with a leading `+` ("+_MSG_TIMED_OUT") appends the message and then fails it. The transport emits statistics at
    the start, before a batch of reports with a failure, and after it unless `automatic_statistics` is off.
    """

    settles_journal = False
    ended = False

    def __init__(
        self,
        config: ClientConfig,
        listener: TransportListener,
        *,
        script: Script | None = None,
        capacity: int = 100_000,
        latency: float = 0.002,
        refuse: Callable[[Delivery], int | None] | None = None,
    ) -> None:
        self.log: dict[str, list[Delivery]] = defaultdict(list)
        self.blind = False
        self.producer_id = -1
        self.disconnects = 0
        self.automatic_statistics = True
        self._listener = listener
        self._script = script or (lambda delivery: None)
        self._capacity = capacity
        self._latency = latency
        self._refuse = refuse or (lambda delivery: None)
        self._changed = threading.Condition()  # guards the fields down to _state
        self._queue: deque[Delivery] = deque()
        self._undecided = 0  # messages that the thread has taken from the queue, without an outcome yet
        self._held: list[Delivery] = []
        self._state = DeliveryState(0)
        self._requests = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="producer-core-memory", daemon=True)

    @classmethod
    def factory(
        cls, made: list[InMemoryTransport] | None = None, **options: object
    ) -> Callable[..., InMemoryTransport]:
        """Return a transport factory. Each transport is appended to `made`, for inspection by tests."""

        def make(config: ClientConfig, listener: TransportListener) -> InMemoryTransport:
            transport = cls(config, listener, **options)  # type: ignore[arg-type]  # options are the constructor's
            if made is not None:
                made.append(transport)
            return transport

        return make

    def start(self) -> None:
        self._thread.start()
        self.emit_statistics()

    def emit_statistics(self) -> None:
        """Emit statistics as librdkafka does: a connection, the requests so far, and the `producer_id`."""
        requests = {"Produce": self._requests}
        memory = {"state": "UP", "nodeid": 1, "req": requests, "disconnects": self.disconnects}
        self._listener.statistics({"brokers": {"memory": memory}, "eos": {"producer_id": self.producer_id}})

    def produce(self, delivery: Delivery) -> None:
        code = self._refuse(delivery)
        if code is not None:
            raise ClientRefused(KafkaError(code))
        with self._changed:
            if self.outstanding() >= self._capacity:
                raise ClientQueueFull
            delivery.state = self._state
            self._queue.append(delivery)
            self._changed.notify()

    def yield_to_poller(self) -> None:
        pass

    def flush_soon(self) -> None:
        pass

    def outstanding(self) -> int:
        return len(self._queue) + self._undecided + len(self._held)

    def cluster_id(self, topic: str | None, timeout: float) -> str | None:
        return "in-memory"

    def find_records(
        self,
        topic: str,
        message_ids: Iterable[str],
        *,
        since_ms: int | None = None,
        floors: Mapping[int, int] | None = None,
        timeout: float = 10.0,
    ) -> dict[str, ProbeResult]:
        """Search `log`. While `blind`, every result is inconclusive, as from a broker that does not respond."""
        offsets = {id_text(delivery.id): offset for offset, delivery in enumerate(self.log[topic])}
        return {message_id: self._probe_result(offsets.get(message_id)) for message_id in message_ids}

    def newer_records(
        self, topic: str, missing: Sequence[MissingRecord], *, number: SequenceLookup, timeout: float
    ) -> NewerRecords:
        """Report no newer records: in-memory topics are never compacted."""
        return NONE_NEWER

    def _probe_result(self, offset: int | None) -> ProbeResult:
        if self.blind:
            return ProbeResult(
                "inconclusive", None, None, 0, "The outcome is unknown: the broker does not respond."
            )
        if offset is None:
            return ProbeResult("not_found", None, None, 0, "The record is not on the topic.")
        return ProbeResult("found", 0, offset, 1, f"The record is at offset {offset}.")

    @property
    def held(self) -> int:
        """The number of messages that the script keeps in flight."""
        return len(self._held)

    def release(self, code: int | None = None) -> None:
        """Report all held messages: acknowledged, or failed with the code."""
        with self._changed:
            held, self._held = self._held, []
        self._report((delivery, code) for delivery in held)

    def break_client(self, error: KafkaError) -> None:
        """Drop all messages in flight without a report, as a fatal client error does."""
        with self._changed:
            broken, self._state = self._state, DeliveryState(self._state.generation + 1)
            self._held.clear()
            self._queue.clear()
        self._listener.fatal(error, broken.generation)

    def purge(self) -> None:
        with self._changed:
            queued, self._queue = list(self._queue), deque()
        self._report((delivery, KafkaError._PURGE_QUEUE) for delivery in queued)
        self.release(KafkaError._PURGE_INFLIGHT)

    def stop(self, timeout: float = 5.0) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._stopping)
                if not self._queue:
                    return
                batch, self._queue = list(self._queue), deque()
                self._undecided = len(batch)
            self._report(self._outcomes(batch))

    def _outcomes(self, batch: list[Delivery]) -> Iterable[tuple[Delivery, int | None]]:
        for delivery in batch:
            outcome = self._script(delivery)
            with self._changed:
                self._undecided -= 1
                if outcome == "hold":
                    self._held.append(delivery)
            if outcome == "hold":
                continue
            if isinstance(outcome, int) or outcome is None:
                yield delivery, outcome
            else:
                if outcome.startswith("+"):
                    self.log[delivery.topic].append(delivery)
                yield delivery, int(getattr(KafkaError, outcome.lstrip("+")))

    def _report(self, outcomes: Iterable[tuple[Delivery, int | None]]) -> None:
        reports = [self._report_row(delivery, code) for delivery, code in outcomes]
        failed = any(error is not None for _, error, _ in reports)
        if failed:
            self._requests += 1
            self.emit_statistics()
        if reports:
            self._listener.reports(reports)
        if failed and self.automatic_statistics:
            self.emit_statistics()

    def _report_row(
        self, delivery: Delivery, code: int | None
    ) -> tuple[Delivery, KafkaError | None, FakeMessage]:
        if code is not None:
            return (
                delivery,
                KafkaError(code),
                FakeMessage(max(delivery.partition, 0), None, self._latency, delivery),
            )
        self.log[delivery.topic].append(delivery)
        offset = len(self.log[delivery.topic]) - 1
        return delivery, None, FakeMessage(max(delivery.partition, 0), offset, self._latency, delivery)
