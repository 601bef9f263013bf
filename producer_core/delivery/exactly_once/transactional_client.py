"""A transactional client: created, fenced, used for transactions, and destroyed at the first failure.

It is never closed and never used again after an error. Closing a broken client blocks, and after an abort a late
request of the old transaction can still commit half of the next one (kafka-real-notes 2.3). Only the fence of a new
client with the same id, `init_transactions`, ends the requests and transactions of the old client. Before its
destruction a client aborts, so that it registers no further partitions; its successor does not rely on that.
"""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from producer_core._internal.librdkafka import Producer
from producer_core._internal.queued_logger import queued_logger
from producer_core._internal.token_source import new_client
from producer_core._internal.user_callbacks import call_both
from producer_core.delivery.delivery import Delivery, Report
from producer_core.delivery.exactly_once.batch_reports import BatchReports
from producer_core.delivery.exactly_once.transaction_errors import is_permanent_rejection
from producer_core.delivery.record_batch import RecordBatch
from producer_core.delivery.sending_client import create_producer
from producer_core.errors import ConfigError

logger = queued_logger(__name__)

_CALL_TIMEOUT_S = 1.0
"""The longest duration of one call into the client, so that it reacts to stop() and serves callbacks."""
_ABORT_TIMEOUT_S = 0.001
"""Seconds that an abort before the destruction may take. The client registers no partitions from its first step on."""
_COLLECT_S = 0.5
"""Seconds for which the remaining reports of a failed transaction are collected."""
_MISSING_OFFSET = KafkaError(KafkaError._INCONSISTENT, "a message was acknowledged without its offset")
"""Such a message is read back before it counts as written, because its position must be recorded."""


class TransactionFailed(Exception):
    """The transaction did not commit, or its outcome is unknown. `reports` are the delivery reports received.

    `may_have_committed`: the commit was requested.
    """

    def __init__(
        self, error: KafkaError, reports: Sequence[Report] = (), *, may_have_committed: bool = False
    ) -> None:
        super().__init__(f"{error.name()}: {error.str()}")
        self.error = error
        self.reports = reports
        self.may_have_committed = may_have_committed


class ClientStopped(Exception):
    """stop() was called during the operation."""


class TransactionalClient:
    """Run transactions with one transactional id from creation to the first failure. Used by one thread."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        transactional_id: str,
        *,
        statistics: Callable[[Mapping[str, Any]], None],
        connection_error: Callable[[KafkaError], None],
        stopping: Callable[[], bool],
    ) -> None:
        self._stopping = stopping
        self._connection_error = connection_error
        self._reports: list[Report] = []
        self._batch_reports = BatchReports(0)
        self._committing = False
        self._fatal: KafkaError | None = None
        self._connection_failed = False
        # Whether a connection failed before the fence was complete: a copy of its request may still be in flight.
        self.fenced_after_disconnect = False
        self._settings = {
            **settings,
            "transactional.id": transactional_id,
            "stats_cb": call_both(lambda text: statistics(json.loads(text)), settings.get("stats_cb")),
            "error_cb": call_both(self._on_error, settings.get("error_cb")),
        }
        # With oauth_cb the client is created by `fence`, which reports that there is no token.
        self._producer: Producer | None = (
            None if "oauth_cb" in settings else self._create_producer(self._settings)
        )

    def _create_producer(self, settings: Mapping[str, Any]) -> Producer:
        return create_producer(settings)

    def _on_error(self, error: KafkaError) -> None:
        self._connection_failed = True
        self._connection_error(error)

    @property
    def _client(self) -> Producer:
        if self._producer is None:
            raise AssertionError("the client was destroyed")
        return self._producer

    def reassign(
        self, *, connection_error: Callable[[KafkaError], None], stopping: Callable[[], bool]
    ) -> None:
        """Let another thread use the client and receive its connection errors. Call only between transactions."""
        self._connection_error, self._stopping = connection_error, stopping

    @property
    def alive(self) -> bool:
        return self._producer is not None

    # fencing

    def fence(self, waiting: Callable[[KafkaError], None]) -> None:
        """Wait until all transactions of earlier clients with this id have ended and their requests are rejected.

        `waiting` is called repeatedly with the error that delays the fence. Raise TransactionFailed when it fails.
        """
        self._create()
        while True:
            try:
                self._client.init_transactions(_CALL_TIMEOUT_S)
                self.serve()  # runs error_cb for errors during the call
                self.fenced_after_disconnect = self._connection_failed
                return
            except KafkaException as error:
                if not error.args[0].retriable() or error.args[0].fatal():
                    raise TransactionFailed(error.args[0]) from error
                waiting(error.args[0])
                self.serve()

    def _create(self) -> None:
        if self._producer is None:
            try:
                self._producer = new_client(self._create_producer, self._settings)
            except KafkaException as error:
                # No token, thread or socket, or a file that is being replaced: the caller tries again.
                self._connection_error(error.args[0])
                raise TransactionFailed(error.args[0]) from error

    # one transaction

    def transact(self, deliveries: Sequence[Delivery], deadline: float) -> tuple[list[Report], list[Report]]:
        """Send and commit the messages in one transaction. Return the reports and the records rejected locally.

        Raise TransactionFailed when it did not commit before `deadline` (monotonic) or when its outcome is unknown.
        """
        self._reports, self._committing = [], False
        try:
            self._client.begin_transaction()
            rejected = self._produce(deliveries, deadline)
            self._await_reports(len(deliveries) - len(rejected), deadline)
            self._commit(deadline)
        except KafkaException as error:
            raise self._failed(error.args[0], list(self._reports)) from error
        return self._reports, rejected

    def transact_batch(self, batch: RecordBatch, deadline: float) -> BatchReports:
        """Send and commit the batch in one transaction, like `transact`. Return the reports by row."""
        reports, self._committing = self._batch_reports, False
        reports.begin(len(batch))
        try:
            self._client.begin_transaction()
            self._produce_batch(batch, reports, deadline)
            self._await_batch(reports, deadline)
            self._commit(deadline)
        except KafkaException as error:
            raise self._failed(error.args[0], reports.of(batch)) from error
        return reports

    def _produce_batch(self, batch: RecordBatch, reports: BatchReports, deadline: float) -> None:
        produce, error = self._client.produce, None
        rows = zip(batch.produce_rows(), reports.callbacks(), strict=True)
        for row, ((topic, value, key, partition, headers), on_report) in enumerate(rows):
            try:  # as in _pass_on, whose call would take a fifth of the time
                produce(topic, value, key, partition, on_report, None, 0, headers)
            except BufferError:
                error = self._pass_on(deadline, topic, value, key, partition, on_report, None, 0, headers)
            except KafkaException as failed:
                error = _rejection(failed)
            if error is not None:
                reports.reject(row, error)
                error = None

    def _await_batch(self, reports: BatchReports, deadline: float) -> None:
        while reports.missing:
            self._progress(deadline)
            if reports.errors:
                self._collect(lambda: reports.missing == 0)
                raise KafkaException(next(iter(reports.errors.values())))
        if reports.errors:
            raise KafkaException(next(iter(reports.errors.values())))
        if reports.lacks_offset:
            raise KafkaException(_MISSING_OFFSET)

    def _produce(self, deliveries: Sequence[Delivery], deadline: float) -> list[Report]:
        rejected: list[Report] = []
        for delivery in deliveries:
            on_report = functools.partial(self._on_report, delivery)
            error = self._pass_on(
                deadline, delivery.topic, delivery.value, delivery.key, delivery.partition, on_report, None,
                delivery.placement.timestamp_ms, delivery.record_headers,
            )  # fmt: skip
            if error is not None:
                rejected.append((delivery, error, None))
        return rejected

    def _pass_on(self, deadline: float, *record: Any) -> KafkaError | None:
        """Pass a record to the client, and wait for room in its queue. Return the error of a record that it rejects.

        Positional, as in KafkaTransport: topic, value, key, partition, callback, unused, timestamp, headers.
        """
        while True:
            try:
                self._client.produce(*record)
            except BufferError:
                self._progress(deadline)
            except KafkaException as failed:
                return _rejection(failed)
            else:
                return None

    def _on_report(self, delivery: Delivery, error: KafkaError | None, message: Any) -> None:
        self._reports.append((delivery, error, message))

    def _await_reports(self, count: int, deadline: float) -> None:
        checked = 0
        while checked < count:
            self._progress(deadline)
            for _, error, _ in self._reports[checked:]:
                if error is not None:
                    self._collect_reports(count)
                    raise KafkaException(error)
            checked = len(self._reports)
        if any(message.offset() is None for _, _, message in self._reports):
            raise KafkaException(_MISSING_OFFSET)

    def _progress(self, deadline: float) -> None:
        self.serve(_CALL_TIMEOUT_S / 10)
        if self._fatal is not None:
            raise KafkaException(self._fatal)
        if time.monotonic() > deadline:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the transaction took too long"))

    def _collect_reports(self, count: int) -> None:
        self._collect(lambda: len(self._reports) >= count)

    def _collect(self, complete: Callable[[], bool]) -> None:
        bound = time.monotonic() + _COLLECT_S
        while not complete() and time.monotonic() < bound and self._fatal is None:
            self.serve(0.05)

    def _commit(self, deadline: float) -> None:
        """Commit. All reports are in, so this sends one request, and its flush has no messages to wait for."""
        self._committing = True
        while True:
            try:
                self._client.commit_transaction(_CALL_TIMEOUT_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
                self.serve()

    def _failed(self, error: KafkaError, reports: Sequence[Report]) -> TransactionFailed:
        """Return the failure. A fatal error is the cause of all other errors."""
        return TransactionFailed(self._fatal or error, reports, may_have_committed=self._committing)

    # callbacks and the end

    def serve(self, timeout: float = 0.0) -> None:
        """Run the callbacks that are due. Raise ClientStopped after stop()."""
        try:
            self._client.poll(timeout)
        except KafkaException as error:
            if error.args[0].fatal():
                self._fatal = self._fatal or error.args[0]
        except Exception:
            logger.exception("poll failed")
        if self._stopping():
            raise ClientStopped

    def destroy(self) -> None:
        """Drop the client without waiting. The next fence or the timeout ends its open transaction.

        librdkafka 2.16 aborts the process if a client is destroyed while it sends AddPartitionsToTxn (`txn_req_cnt > 0` in
        rdkafka_txnmgr.c). After the first step of an abort, which needs no broker, it sends no such request.
        """
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(Exception):
                producer.purge()
                producer.poll(0)
            with contextlib.suppress(Exception):
                producer.abort_transaction(_ABORT_TIMEOUT_S)


def _rejection(failed: KafkaException) -> KafkaError:
    """Return the error of a record that can never be sent; raise any other error."""
    error: KafkaError = failed.args[0]
    if not is_permanent_rejection(error):
        raise failed
    return error


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise ConfigError when librdkafka rejects these settings for transactions. Sends no request."""
    replaced = {"bootstrap.servers": "", "transactional.id": "check", "statistics.interval.ms": 0}
    without_login = {
        name: value
        for name, value in settings.items()
        if not name.startswith(("sasl.", "security.", "oauth_cb"))
    }
    try:
        create_producer({**without_login, **replaced})
    except KafkaException as error:
        raise ConfigError(
            f"Transactions cannot be used with these settings: {error.args[0].str()}"
        ) from error
