"""The transport: the only module that produces with confluent_kafka.

One thread polls. Each delivery report lands in a list (`Delivery.__call__`, which does nothing else), and after
each poll the list is handed to the listener in one call, so that a message costs no lock and no hand-over.
`flush()` of the client is never called: it can lose a report when the client turns fatal (kafka-notes, 0.3).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import orjson
from confluent_kafka import KafkaError, KafkaException, Producer

from producer_core._internal import forks
from producer_core._internal.librdkafka import client_log
from producer_core._internal.masking import mask_or_hide
from producer_core._internal.user_callbacks import call_both
from producer_core.config import ClientConfig
from producer_core.delivery.connection_state import produced
from producer_core.delivery.delivery import Delivery, DeliveryState, Report
from producer_core.delivery.gil_handoff import GilHandoff
from producer_core.delivery.missing_report import NOT_SENT
from producer_core.delivery.report_batch import ReportBatch
from producer_core.errors import ForkedProducer, ProducerError
from producer_core.events import Notice
from producer_core.kafka import clients, record_lookup
from producer_core.kafka.compaction import Compaction, MissingRecord, NewerRecords
from producer_core.kafka.newer_keys import Number
from producer_core.kafka.record_lookup import ProbeResult
from producer_core.messages import ID_HEADER

logger = logging.getLogger(__name__)

_POLL = 0.1
"""Seconds a poll waits for something to report; it returns as soon as there is."""
_FEW = 100
"""Reports up to which a poll is repeated at once: more of them are worth a hand-over of their own."""
_NO_PRODUCER_ID = (
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError._UNSUPPORTED_FEATURE,
)
"""What InitProducerId is refused with for good (rdkafka_idempotence.c)."""
_LONGEST_PAUSE = 30.0
"""Seconds between two clients when one after the other breaks."""


class ClientRefused(Exception):
    """The client refused a message on the spot; nothing was sent."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.str())
        self.error = error


class ClientQueueFull(Exception):
    """The client's queue has no room."""


class TransportListener(Protocol):
    """Who hears of the transport; every call comes from its poll thread."""

    def reports(self, batch: Sequence[Report]) -> None: ...
    def statistics(self, statistics: Mapping[str, Any]) -> None: ...
    def connection_error(self, error: KafkaError) -> None: ...
    def fatal(self, error: KafkaError, generation: int, *, sent: bool = True) -> None:
        """The client broke and a new one is there; without `sent` nothing of the broken one ever left us."""

    def notice(self, notice: Notice) -> None: ...


class Transport(Protocol):
    """What the producer needs of a client; the real one and `producer_core.testing`'s pass the same tests."""

    @property
    def settles_journal(self) -> bool:
        """It settles in the journal what it reports as acknowledged, and finds by itself what earlier processes left."""

    @property
    def ended(self) -> bool:
        """Nothing that waits can be settled here any more."""

    def start(self) -> None:
        """Start polling."""

    def yield_to_poller(self) -> None:
        """A thread that sends is about to send another thousand: a moment for reports. No message is on its way to us."""

    def flush_soon(self) -> None:
        """Somebody waits for reports and sends nothing meanwhile."""

    def produce(self, delivery: Delivery) -> None:
        """Take the message, or raise Full or Refused; its report comes later, exactly once."""

    def outstanding(self) -> int:
        """Messages taken whose reports have not come."""

    def cluster_id(self, topic: str | None, timeout: float) -> str | None:
        """The cluster's id, asked with one known topic if there is one; None when nobody answers in time."""

    def find_records(
        self,
        topic: str,
        message_ids: Sequence[str],
        *,
        since_ms: int | None = None,
        floors: Mapping[int, int] | None = None,
        timeout: float = 10.0,
    ) -> Mapping[str, ProbeResult]:
        """Which of these messages are on the topic; blocks up to the timeout, so never on the poll thread."""

    def newer_records(
        self, topic: str, missing: Sequence[MissingRecord], *, number: Number, timeout: float
    ) -> NewerRecords:
        """Return which messages that were not found have a newer record of their key, where the topic may be compacted.

        `number` knows the sequences of the producer's own ids. Blocks as `find_records` does.
        """

    def purge(self) -> None:
        """Give up everything outstanding; each still gets its report."""

    def stop(self, timeout: float = 5.0) -> None:
        """Stop polling and drop the client, without waiting for what is outstanding; within the timeout in seconds."""


TransportFactory = Callable[[ClientConfig, TransportListener], Transport]


class KafkaTransport:
    """confluent_kafka's Producer, polled by one thread and re-created when it turns fatal."""

    settles_journal = False
    ended = False

    def __init__(self, config: ClientConfig, listener: TransportListener) -> None:
        self._config = config
        self._compaction = Compaction(config.settings)
        self._listener = listener
        self._reports = ReportBatch([])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer-core-poll", daemon=True)
        self._handover = GilHandoff(self._reports, self.outstanding)
        self._here = forks.mark()
        # The client, and the place of what it has: replaced together.
        self._live = (self._first(), DeliveryState(0, self._reports.rows.extend))
        self._refusal: KafkaError | None = None  # why nothing can be sent until the next client
        # touched on the poll thread only
        self._fatals = 0  # clients that broke since something was acknowledged
        self._latest: list[Mapping[str, Any]] = []  # the last statistics, once there are any

    def start(self) -> None:
        self._thread.start()

    def yield_to_poller(self) -> None:
        if self._here[0]:
            self._handover.yield_to_poller()

    def flush_soon(self) -> None:
        self._handover.flush_soon()

    def produce(self, delivery: Delivery) -> None:
        if not self._here[0]:
            raise ForkedProducer
        if self._refusal is not None:
            raise ClientRefused(self._refusal)
        placement = delivery.placement
        headers = delivery.record_headers if delivery.headers else [(ID_HEADER, delivery.id)]
        client, delivery.place = self._live
        try:
            # Positional: keywords cost 0.1 µs each. The fifth is `callback`; its alias on_delivery is the sixth.
            client.produce(
                delivery.topic, delivery.value, delivery.key, placement.partition, delivery, None,
                placement.timestamp_ms, headers,
            )  # fmt: skip
        except BufferError as error:
            self._handover.flush_soon()
            raise ClientQueueFull from error
        except KafkaException as error:
            if error.args[0].code() == KafkaError._FATAL:  # until the poll thread has re-created the client
                raise ClientQueueFull from error
            raise ClientRefused(error.args[0]) from error

    def outstanding(self) -> int:
        return len(self._live[0]) + len(self._reports)

    def cluster_id(self, topic: str | None, timeout: float) -> str | None:
        if topic is None:
            return clients.cluster_id(self._config.settings, None, timeout)
        try:
            found: str | None = self._live[0].list_topics(topic, timeout=timeout).cluster_id
        except KafkaException:
            return None
        return found

    def find_records(
        self,
        topic: str,
        message_ids: Sequence[str],
        *,
        since_ms: int | None = None,
        floors: Mapping[int, int] | None = None,
        timeout: float = 10.0,
    ) -> Mapping[str, ProbeResult]:
        settings = self._config.settings
        return record_lookup.look(
            settings, topic, message_ids, since_ms=since_ms, floors=floors, timeout=timeout
        )

    def newer_records(
        self, topic: str, missing: Sequence[MissingRecord], *, number: Number, timeout: float
    ) -> NewerRecords:
        return self._compaction.newer_records(topic, missing, number=number, timeout=timeout)

    def purge(self) -> None:
        self._live[0].purge()

    def stop(self, timeout: float = 5.0) -> None:
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        self._discard(self._live[0])

    def _first(self) -> Producer:
        try:
            return self._connect()
        except KafkaException as error:  # oauth_cb gave no token, or the process has no thread left
            raise ProducerError(
                f"No Kafka client can be made: {mask_or_hide(str(error.args[0]))}."
            ) from error

    def _connect(self) -> Producer:
        return Producer(self._settings())

    def _settings(self) -> dict[str, Any]:
        settings = dict(self._config.settings)
        settings["stats_cb"] = call_both(self._statistics, settings.get("stats_cb"))
        settings["error_cb"] = call_both(self._listener.connection_error, settings.get("error_cb"))
        settings.setdefault("logger", client_log())
        return settings

    def _statistics(self, text: str) -> None:
        statistics = orjson.loads(text)  # megabytes each second, with a thousand partitions
        self._latest[:] = [statistics]
        self._listener.statistics(statistics)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._gather(self._handover.turn(_POLL))
                    self._hand_over()
                except BaseException:  # else nobody would hear of a message again
                    logger.exception("reports were not settled")
                    self._stopping.wait(_POLL)
            self._poll(0)
            self._hand_over()
        finally:
            self._handover.end()

    def _gather(self, timeout: float) -> None:
        """Poll, and again while that brings a few more: an answer's partitions come one after the other, and a hand-over
        takes longer than the next one's coming."""
        count = len(self._reports)
        self._poll(timeout)
        while count < (now := len(self._reports)) <= _FEW:
            count = now
            self._poll(0)

    def _poll(self, timeout: float) -> None:
        try:
            self._live[0].poll(timeout)
        except KafkaException as error:
            self._failed(error.args[0])
        except BaseException:
            logger.exception("poll failed")

    def _hand_over(self) -> None:
        batch = self._reports.take()
        if batch:
            if self._fatals and any(error is None for _, error, _ in batch):
                self._fatals = 0
            self._listener.reports(batch.truly_placed())

    def _failed(self, error: KafkaError) -> None:
        if not error.fatal():
            logger.warning(
                "poll reported an error", extra={"code": error.name(), "error": mask_or_hide(error.str())}
            )
            return
        self._drain(5.0)
        sent = not self._never_sent(1.5)
        if sent:
            self._hand_over()
        else:
            self._refuse(error)
        self._renew(error, sent)

    def _renew(self, error: KafkaError, sent: bool) -> None:
        """A new client in the broken one's place, after a pause that grows while none of them gets anywhere."""
        dead, place = self._live
        self._fatals += 1
        if self._fatals > 1:
            self._stopping.wait(min(0.25 * 2**self._fatals, _LONGEST_PAUSE))
        client = self._connected()
        self._live = (client, DeliveryState(place.generation + 1, place.report))
        self._refusal = None
        self._discard(dead)
        try:
            self._hand_over()
        finally:
            self._listener.fatal(error, place.generation, sent=sent)

    def _connected(self) -> Producer:
        """A client, as soon as there is a thread and a socket for it."""
        while True:
            try:
                return self._connect()
            except KafkaException as error:
                logger.warning("no client", extra={"error": mask_or_hide(str(error))})
                if self._stopping.wait(1.0):
                    raise

    def _drain(self, bound: float) -> None:
        """Collect what a broken client still reports: in-flight requests finish with their own result."""
        deadline = time.monotonic() + bound
        client = self._live[0]
        while len(client) and time.monotonic() < deadline:
            with contextlib.suppress(KafkaException):
                client.poll(_POLL)

    def _never_sent(self, bound: float) -> bool:
        """Whether statistics that were taken now prove it: a client without a producer id cannot have produced."""
        if not self._config.idempotent:
            return False
        self._latest.clear()
        deadline = time.monotonic() + bound
        while not self._latest and time.monotonic() < deadline:
            with contextlib.suppress(KafkaException):
                self._live[0].poll(_POLL)
        return any(
            taken.get("eos", {}).get("producer_id") == -1 and not produced(taken) for taken in self._latest
        )

    def _refuse(self, error: KafkaError) -> None:
        """Nothing left us; where the broker gives this user no producer id, nothing can until the next client."""
        reason = KafkaError(error.code(), error.str())
        if error.code() in _NO_PRODUCER_ID:
            self._refusal = reason
        self._listener.reports([(delivery, reason, NOT_SENT) for delivery, _, _ in self._reports.take()])

    @staticmethod
    def _discard(client: Producer) -> None:
        """Purge and drop: closing a client that cannot reach its broker would block (kafka-notes 1.3)."""
        with contextlib.suppress(KafkaException):
            client.purge()
            client.poll(0)
