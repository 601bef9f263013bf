"""Produce with confluent_kafka; no other module of the send path does.

One thread polls. `Delivery.__call__` appends each delivery report to a list, and after each poll the listener receives the
whole list in one call, so that a message needs no lock and no call of its own. The client's `flush()` is never called: it can
lose a report when the client has a fatal error (kafka-notes, 0.3).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import orjson
from confluent_kafka import KafkaError, KafkaException

from producer_core._internal import forks
from producer_core._internal.librdkafka import Producer, queued_client_log
from producer_core._internal.log_fields import with_fields
from producer_core._internal.masking import mask_or_hide
from producer_core._internal.queued_logger import queued_logger
from producer_core._internal.token_source import TokenFailed, new_client
from producer_core._internal.user_callbacks import call_both
from producer_core.config import ClientConfig
from producer_core.delivery.connection_state import produced
from producer_core.delivery.delivery import Delivery, DeliveryState, Report
from producer_core.delivery.gil_handoff import GilHandoff
from producer_core.delivery.missing_report import NOT_SENT
from producer_core.delivery.report_batch import ReportBatch
from producer_core.delivery.sending_client import create_producer
from producer_core.errors import ConfigError, ForkedProducer, ProducerError
from producer_core.events import Notice
from producer_core.kafka import clients, record_lookup
from producer_core.kafka.compaction import Compaction, MissingRecord, NewerRecords
from producer_core.kafka.newer_keys import SequenceLookup
from producer_core.kafka.record_lookup import ProbeResult
from producer_core.messages import ID_HEADER

logger = queued_logger(__name__)

_POLL_TIMEOUT = 0.1
"""Seconds that a poll waits for reports; it returns as soon as one arrives."""
_SMALL_BATCH = 100
"""Reports up to which a poll is repeated before the reports are settled."""
_NO_PRODUCER_ID = (
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError._UNSUPPORTED_FEATURE,
)
"""Permanent errors of InitProducerId (rdkafka_idempotence.c)."""
_MAX_PAUSE = 30.0
"""The longest pause in seconds between two clients that fail one after the other."""


class ClientRefused(Exception):
    """The client refused a message at once; nothing was sent."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.str())
        self.error = error


class ClientQueueFull(Exception):
    """The client's queue has no room."""


class TransportListener(Protocol):
    """Receives the events of a transport. Every method is called on the poll thread."""

    def reports(self, batch: Sequence[Report]) -> None: ...
    def statistics(self, statistics: Mapping[str, Any]) -> None: ...
    def connection_error(self, error: KafkaError) -> None: ...
    def fatal(self, error: KafkaError, generation: int, *, sent: bool = True) -> None:
        """Handle the failure of a client that a new one has replaced. Without `sent` the failed one sent nothing."""

    def notice(self, notice: Notice) -> None: ...


class Transport(Protocol):
    """Sends messages and reports their outcomes. The real transport and that of `producer_core.testing` pass the same tests."""

    @property
    def settles_journal(self) -> bool:
        """Whether the transport settles acknowledged messages in the journal, and recovers messages of earlier processes."""

    @property
    def ended(self) -> bool:
        """Whether the transport can settle no more messages."""

    def start(self) -> None:
        """Start polling."""

    def yield_to_poller(self) -> None:
        """Let the poll thread work before the calling thread sends more. Called every 1,024 messages, between two of them."""

    def flush_soon(self) -> None:
        """Deliver reports soon: a thread waits for them and sends nothing."""

    def produce(self, delivery: Delivery) -> None:
        """Send the message; its report follows exactly once. Raises ClientQueueFull or ClientRefused."""

    def outstanding(self) -> int:
        """Return the number of messages that are not reported yet."""

    def cluster_id(self, topic: str | None, timeout: float) -> str | None:
        """Return the cluster's id, or None when no broker responds in time. A known topic limits the metadata request."""

    def find_records(
        self,
        topic: str,
        message_ids: Sequence[str],
        *,
        since_ms: int | None = None,
        floors: Mapping[int, int] | None = None,
        timeout: float = 10.0,
    ) -> Mapping[str, ProbeResult]:
        """Find messages on the topic by id. Blocks for up to `timeout` seconds, so do not call it on the poll thread."""

    def newer_records(
        self, topic: str, missing: Sequence[MissingRecord], *, number: SequenceLookup, timeout: float
    ) -> NewerRecords:
        """Return which of the missing messages have a newer record of their key, if the topic may be compacted.

        `number` returns the sequence of an id of this producer. Blocks like `find_records`.
        """

    def purge(self) -> None:
        """Give up all unreported messages; each is still reported."""

    def stop(self, timeout: float = 5.0) -> None:
        """Stop polling and drop the client within `timeout` seconds, without waiting for unreported messages."""


TransportFactory = Callable[[ClientConfig, TransportListener], Transport]


class KafkaTransport:
    """Sends with confluent_kafka's Producer, polls it on one thread, and re-creates it after a fatal error."""

    settles_journal = False
    ended = False

    def __init__(self, config: ClientConfig, listener: TransportListener) -> None:
        self._config = config
        self._compaction = Compaction(config.settings)
        self._listener = listener
        self._reports = ReportBatch([])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer-core-poll", daemon=True)
        self._handoff = GilHandoff(self._reports, self.outstanding)
        self._not_forked = forks.mark()
        # The client, and the state of the messages that it has. Both are replaced together.
        self._live = (self._first_client(), DeliveryState(0, self._reports.rows.extend))
        self._refusal: KafkaError | None = None  # why this client cannot send anything
        # used on the poll thread only
        self._failures = 0  # clients that failed since the last acknowledgement
        self._latest: list[Mapping[str, Any]] = []  # the latest statistics, if any

    def start(self) -> None:
        self._thread.start()

    def yield_to_poller(self) -> None:
        if self._not_forked[0]:
            self._handoff.yield_to_poller()

    def flush_soon(self) -> None:
        self._handoff.flush_soon()

    def produce(self, delivery: Delivery) -> None:
        if not self._not_forked[0]:
            raise ForkedProducer
        if self._refusal is not None:
            raise ClientRefused(self._refusal)
        placement = delivery.placement
        headers = delivery.record_headers if delivery.headers else [(ID_HEADER, delivery.id)]
        client, delivery.state = self._live
        try:
            # Positional, because a keyword costs 0.1 µs. The fifth argument is `callback`, the sixth its alias on_delivery.
            client.produce(
                delivery.topic, delivery.value, delivery.key, placement.partition, delivery, None,
                placement.timestamp_ms, headers,
            )  # fmt: skip
        except BufferError as error:
            self._handoff.flush_soon()
            raise ClientQueueFull from error
        except KafkaException as error:
            if error.args[0].code() == KafkaError._FATAL:  # the poll thread will re-create the client
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
        return record_lookup.find_records(
            settings, topic, message_ids, since_ms=since_ms, floors=floors, timeout=timeout
        )

    def newer_records(
        self, topic: str, missing: Sequence[MissingRecord], *, number: SequenceLookup, timeout: float
    ) -> NewerRecords:
        return self._compaction.newer_records(topic, missing, number=number, timeout=timeout)

    def purge(self) -> None:
        self._live[0].purge()

    def stop(self, timeout: float = 5.0) -> None:
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        self._discard(self._live[0])

    def _first_client(self) -> Producer:
        try:
            return self._new_client()
        except TokenFailed:
            raise
        except KafkaException as error:
            raise _no_client(error.args[0]) from error

    def _new_client(self) -> Producer:
        return new_client(create_producer, self._settings())

    def _settings(self) -> dict[str, Any]:
        settings = dict(self._config.settings)
        settings["stats_cb"] = call_both(self._statistics, settings.get("stats_cb"))
        settings["error_cb"] = call_both(self._listener.connection_error, settings.get("error_cb"))
        settings["logger"] = queued_client_log()
        return settings

    def _statistics(self, text: str) -> None:
        statistics = orjson.loads(text)  # for speed: megabytes each second with a thousand partitions
        self._latest[:] = [statistics]
        self._listener.statistics(statistics)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._collect(self._handoff.poll_timeout(_POLL_TIMEOUT))
                    self._settle_reports()
                except BaseException:  # the thread must continue, or no message would be settled again
                    logger.exception("reports were not settled")
                    self._stopping.wait(_POLL_TIMEOUT)
            self._poll(0)
            self._settle_reports()
        finally:
            self._handoff.end()

    def _collect(self, timeout: float) -> None:
        """Poll, and repeat while each poll adds a few reports.

        The partitions of one response are reported one after the other, faster than the listener settles a batch.
        """
        before = len(self._reports)
        self._poll(timeout)
        while before < (count := len(self._reports)) <= _SMALL_BATCH:
            before = count
            self._poll(0)

    def _poll(self, timeout: float) -> None:
        try:
            self._live[0].poll(timeout)
        except KafkaException as error:
            self._failed(error.args[0])
        except BaseException:
            logger.exception("poll failed")

    def _settle_reports(self) -> None:
        batch = self._reports.take()
        if batch:
            if self._failures and any(error is None for _, error, _ in batch):
                self._failures = 0
            self._listener.reports(batch.with_real_offsets())

    def _failed(self, error: KafkaError) -> None:
        if not error.fatal():
            logger.warning(
                **with_fields("poll reported an error", code=error.name(), error=mask_or_hide(error.str()))
            )
            return
        self._drain(5.0)
        sent = not self._never_sent(1.5)
        if sent:
            self._settle_reports()
        else:
            self._report_not_sent(error)
        self._replace_client(error, sent)

    def _replace_client(self, error: KafkaError, sent: bool) -> None:
        """Replace the failed client, after a pause that grows until a client gets an acknowledgement."""
        failed, state = self._live
        self._failures += 1
        if self._failures > 1:
            self._stopping.wait(min(0.25 * 2**self._failures, _MAX_PAUSE))
        client = self._wait_for_client()
        self._live = (client, DeliveryState(state.generation + 1, state.report))
        self._refusal = None
        self._discard(failed)
        try:
            self._settle_reports()
        finally:
            self._listener.fatal(error, state.generation, sent=sent)

    def _wait_for_client(self) -> Producer:
        """Create a client as soon as the process has a token, a thread and a socket for it.

        Every exception is handled: a fatal error is raised once, so no later poll would replace the client.
        """
        while True:
            try:
                return self._new_client()
            except Exception as error:
                logger.warning(**with_fields("kafka client not created", error=mask_or_hide(str(error))))
                self._report_no_client(error)
                if self._stopping.wait(1.0):
                    raise

    def _report_no_client(self, error: Exception) -> None:
        """Report why there is no client: until one is created, no statistics show that no broker is connected."""
        with contextlib.suppress(Exception):  # of the user's hooks
            of_client = isinstance(error, KafkaException)
            reason = error.args[0] if of_client else KafkaError(KafkaError._CRIT_SYS_RESOURCE, str(error))
            self._listener.connection_error(reason)
            self._listener.connection_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))

    def _drain(self, timeout: float) -> None:
        """Collect the last reports of a failed client: requests in flight finish with a result of their own."""
        deadline = time.monotonic() + timeout
        client = self._live[0]
        while len(client) and time.monotonic() < deadline:
            with contextlib.suppress(KafkaException):
                client.poll(_POLL_TIMEOUT)

    def _never_sent(self, timeout: float) -> bool:
        """Return whether new statistics prove that this client sent nothing: without a producer id it cannot produce."""
        if not self._config.idempotent:
            return False
        self._latest.clear()
        deadline = time.monotonic() + timeout
        while not self._latest and time.monotonic() < deadline:
            with contextlib.suppress(KafkaException):
                self._live[0].poll(_POLL_TIMEOUT)
        return any(
            statistics.get("eos", {}).get("producer_id") == -1 and not produced(statistics)
            for statistics in self._latest
        )

    def _report_not_sent(self, error: KafkaError) -> None:
        """Report all collected messages as not sent. If the broker refuses a producer id, refuse messages until the
        client is replaced."""
        reason = KafkaError(error.code(), error.str())
        if error.code() in _NO_PRODUCER_ID:
            self._refusal = reason
        self._listener.reports([(delivery, reason, NOT_SENT) for delivery, _, _ in self._reports.take()])

    @staticmethod
    def _discard(client: Producer) -> None:
        """Purge and drop a client. Closing one that cannot reach its broker would block (kafka-notes 1.3)."""
        with contextlib.suppress(KafkaException):
            client.purge()
            client.poll(0)


def _no_client(error: KafkaError) -> ProducerError:
    """Return the exception for a client that cannot be created: a wrong setting, or no thread for it."""
    reason = error.str().removeprefix("Failed to create producer: ").rstrip(".")
    what = f"Cannot create Kafka client: {mask_or_hide(reason)} ({error.name()})."
    if error.code() == KafkaError._INVALID_ARG:
        return ConfigError(
            what, fix="Check the settings mentioned in the reason, and the files they refer to."
        )
    return ProducerError(what)
