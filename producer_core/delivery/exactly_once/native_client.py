"""A transactional client whose messages and reports pass through the native core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from producer_core._internal.id_header import ID_FORMAT_KEY
from producer_core._internal.librdkafka import Producer
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.exactly_once.transactional_client import TransactionalClient, TransactionFailed
from producer_core.delivery.sending_client import create_producer
from producer_core.native.library import CoreUnavailable, unavailable_reason
from producer_core.native.transaction_core import PLUGINS, TransactionCore

_REFUSED_VALUES = (TypeError, ValueError, AttributeError, OverflowError, IndexError)
"""Errors of a message that the core cannot read. The Python path says what is wrong with it."""


class CommittedColumns(NamedTuple):
    """The offset and the timestamp, in milliseconds, of each message of a transaction, in the order of the messages."""

    offsets: list[int]
    timestamps: list[int]


class ReportFailed(TransactionFailed):
    """A delivery report is not a success with an offset. `error` is the first one."""


class NativeClient(TransactionalClient):
    """Run transactions as `TransactionalClient` does, or with `begin`, `pass_on` and `finish` through the native core.

    These three raise TransactionFailed without reports: the Python path finds the cause when it sends the messages again.
    """

    _core: TransactionCore | None = None
    core_error: str | None = None
    """Why this client has no core, although it should have one."""

    @property
    def has_core(self) -> bool:
        return self._core is not None

    def _create_producer(self, settings: Mapping[str, Any]) -> Producer:
        self._core = None
        try:
            self._core = TransactionCore(create_producer, dict(settings))
        except CoreUnavailable as error:
            self.core_error = str(error)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._INVALID_ARG:
                raise
            self.core_error = f"librdkafka cannot load it: {error.args[0].str()}."
        client: Producer = create_producer(settings) if self._core is None else self._core.client
        return client

    @property
    def _native(self) -> TransactionCore:
        if self._core is None:
            raise AssertionError("the client has no native core")
        return self._core

    def begin(self) -> None:
        """Begin a transaction."""
        self._committing = False
        self._native.begin()
        try:
            self._client.begin_transaction()
        except KafkaException as error:
            raise self._failed(error.args[0], ()) from error

    def pass_on(self, deliveries: list[Delivery], deadline: float) -> int:
        """Pass messages to the client, and wait for room in its queue. Return how many it took.

        If it did not take all of them, the next one needs the Python path.
        """
        passed, code = 0, 0
        try:
            while passed < len(deliveries):
                try:
                    count, code = self._native.produce(deliveries, passed)
                except _REFUSED_VALUES:
                    break
                passed += count
                if code == KafkaError._QUEUE_FULL:
                    self._progress(deadline)
                elif code:
                    break
        except KafkaException as error:
            raise self._failed(error.args[0], ()) from error
        return passed

    @property
    def unreported(self) -> tuple[int, bool]:
        """The number of messages without a report, and whether a report is not a success with an offset.

        A transaction with such a report cannot be committed.
        """
        missing, code = self._native.missing()
        return missing, code != 0

    def finish(self, count: int, deadline: float) -> CommittedColumns:
        """Wait for the reports of the transaction's messages and commit it. Raise TransactionFailed if it fails."""
        try:
            while True:
                missing, code = self._native.missing()
                if code:
                    self.serve()  # a fatal error, such as a fence, is the cause of all other errors
                    self._collect(lambda: self._native.missing()[0] == 0)
                    raise ReportFailed(self._fatal or KafkaError(code))
                if not missing:
                    break
                self._progress(deadline)
            self._commit(deadline)
        except KafkaException as error:
            raise self._failed(error.args[0], ()) from error
        return CommittedColumns(*self._native.columns(count))

    def destroy(self) -> None:
        self._core = None
        super().destroy()


def core_refusal(settings: Mapping[str, Any]) -> str | None:
    """Return the sentence that says why these settings, or this installation, exclude the native core; None if neither."""
    if settings.get(ID_FORMAT_KEY) is not None:
        return "It writes message ids as bytes only."
    if settings.get(PLUGINS):
        return f"The setting {PLUGINS} loads another plugin."
    return unavailable_reason()
