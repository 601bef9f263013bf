"""A transactional client: made, fenced, used for transactions, destroyed at the first failure.

It is never closed and never used again after an error: closing a broken client blocks, and after an abort a late
request of the old transaction may still commit half of the next one (kafka-real-notes 2.3). Only the fence of a
new client with the same id, `init_transactions`, ends what the old one left behind.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from producer_core._internal.user_callbacks import call_both
from producer_core.delivery.delivery import Delivery, Report
from producer_core.delivery.exactly_once.transaction_errors import refused_for_good
from producer_core.errors import ConfigError

logger = logging.getLogger(__name__)

_SLICE = 1.0
"""Seconds a call into the client lasts at most, so that stop() is heard and callbacks are served."""
_REST = 0.5
"""Seconds in which the other reports of a transaction that failed are collected."""
_UNPLACED = KafkaError(KafkaError._INCONSISTENT, "a message was acknowledged without its offset")
"""It is read back before it counts: the ledger must know where it lies."""


class TransactionFailed(Exception):
    """The transaction did not commit, or nobody knows; `reports` are what was heard of its records."""

    def __init__(self, error: KafkaError, reports: Sequence[Report] = ()) -> None:
        super().__init__(f"{error.name()}: {error.str()}")
        self.error = error
        self.reports = reports


class ClientStopped(Exception):
    """stop() was called in the middle."""


class TransactionalClient:
    """One life of the client with this transactional id; used by one thread."""

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
        self._fatal: KafkaError | None = None
        self._troubled = False  # a connection broke
        self.fenced_in_trouble = (
            False  # one broke before the fence was done: a copy of its request may be on its way
        )
        self._producer: Producer | None = Producer(
            {
                **settings,
                "transactional.id": transactional_id,
                "stats_cb": call_both(lambda text: statistics(json.loads(text)), settings.get("stats_cb")),
                "error_cb": call_both(self._heard, settings.get("error_cb")),
            }
        )

    def _heard(self, error: KafkaError) -> None:
        self._troubled = True
        self._connection_error(error)

    @property
    def _live(self) -> Producer:
        if self._producer is None:
            raise AssertionError("the client was destroyed")
        return self._producer

    def hand_to(
        self, *, connection_error: Callable[[KafkaError], None], stopping: Callable[[], bool]
    ) -> None:
        """Another thread uses it from now on, and hears of its troubles. Between two transactions only."""
        self._connection_error, self._stopping = connection_error, stopping

    @property
    def alive(self) -> bool:
        return self._producer is not None

    # fencing

    def fence(self, waiting: Callable[[KafkaError], None]) -> None:
        """Until every transaction of an earlier client has ended and no request of it counts any more.

        `waiting` hears, again and again, why it has not happened yet. TransactionFailed when it cannot.
        """
        while True:
            try:
                self._live.init_transactions(_SLICE)
                self.serve()  # what error_cb heard meanwhile
                self.fenced_in_trouble = self._troubled
                return
            except KafkaException as error:
                if not error.args[0].retriable() or error.args[0].fatal():
                    raise TransactionFailed(error.args[0]) from error
                waiting(error.args[0])
                self.serve()

    # one transaction

    def transact(self, deliveries: Sequence[Delivery], deadline: float) -> tuple[list[Report], list[Report]]:
        """Sends these in one transaction and commits it: (reports of what was committed, refusals on the spot).

        TransactionFailed when it did not commit before `deadline` (monotonic), or when nobody knows.
        """
        self._reports = []
        try:
            self._live.begin_transaction()
            refused = self._produce(deliveries, deadline)
            self._await_reports(len(deliveries) - len(refused), deadline)
            self._commit(deadline)
        except KafkaException as error:
            raise self._failed(error.args[0]) from error
        return self._reports, refused

    def _produce(self, deliveries: Sequence[Delivery], deadline: float) -> list[Report]:
        produce = self._live.produce
        refused: list[Report] = []
        for delivery in deliveries:
            reported = functools.partial(self._reported, delivery)
            while True:
                try:
                    # Positional, as in KafkaTransport: topic, value, key, partition, callback, -, timestamp, headers.
                    produce(
                        delivery.topic, delivery.value, delivery.key, delivery.partition, reported, None,
                        delivery.placement.timestamp_ms, delivery.record_headers,
                    )  # fmt: skip
                    break
                except BufferError:
                    self._progress(deadline)
                except KafkaException as error:
                    if not refused_for_good(error.args[0]):
                        raise
                    refused.append((delivery, error.args[0], None))
                    break
        return refused

    def _reported(self, delivery: Delivery, error: KafkaError | None, message: Any) -> None:
        self._reports.append((delivery, error, message))

    def _await_reports(self, count: int, deadline: float) -> None:
        seen = 0
        while seen < count:
            self._progress(deadline)
            for _, error, _ in self._reports[seen:]:
                if error is not None:
                    self._collect_the_rest(count)
                    raise KafkaException(error)
            seen = len(self._reports)
        if any(message.offset() is None for _, _, message in self._reports):
            raise KafkaException(_UNPLACED)

    def _progress(self, deadline: float) -> None:
        self.serve(_SLICE / 10)
        if self._fatal is not None:
            raise KafkaException(self._fatal)
        if time.monotonic() > deadline:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the transaction took too long"))

    def _collect_the_rest(self, count: int) -> None:
        bound = time.monotonic() + _REST
        while len(self._reports) < count and time.monotonic() < bound and self._fatal is None:
            self.serve(0.05)

    def _commit(self, deadline: float) -> None:
        """Every report is in, so this sends one request; its flush finds nothing to wait for."""
        while True:
            try:
                self._live.commit_transaction(_SLICE)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
                self.serve()

    def _failed(self, error: KafkaError) -> TransactionFailed:
        """A fatal error is the cause of whatever else was heard."""
        return TransactionFailed(self._fatal or error, list(self._reports))

    # living and dying

    def serve(self, timeout: float = 0.0) -> None:
        """Run the callbacks that are due; Stopped when stop() was called."""
        try:
            self._live.poll(timeout)
        except KafkaException as error:
            if error.args[0].fatal():
                self._fatal = self._fatal or error.args[0]
        except Exception:
            logger.exception("poll failed")
        if self._stopping():
            raise ClientStopped

    def destroy(self) -> None:
        """Drop it without waiting; what it had open is ended by the next fence, or by its time-out."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(Exception):
                producer.purge()
                producer.poll(0)


def check(settings: Mapping[str, Any]) -> None:
    """ConfigError where the library does not make a transactional client of these settings. Nobody is asked."""
    alone = {"bootstrap.servers": "", "transactional.id": "check", "statistics.interval.ms": 0}
    try:
        Producer({**settings, **alone})
    except KafkaException as error:
        raise ConfigError(f"Transactions cannot be had with these settings: {error.args[0].str()}") from error
