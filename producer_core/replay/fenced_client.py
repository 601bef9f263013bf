"""The transactional client of a replay: a new one fences the earlier ones before any record is read or sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError

from producer_core._internal.compression_choice import with_fixed_codec
from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.delivery.exactly_once.transactional_client import (
    ClientStopped,
    TransactionalClient,
    TransactionFailed,
)
from producer_core.delivery.exactly_once.transactional_transport import transactional_settings
from producer_core.replay.guarantee import TRANSACTIONAL_ID
from producer_core.replay.supervisor import Supervisor

logger = queued_logger(__name__)

_REST = 2.0
"""Seconds to wait after a failure, doubled after each further failure up to sixteen times."""


class FencedClient:
    """The client of one operation. `unused`: it was inherited and has not committed a transaction since."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        operation_id: str,
        supervisor: Supervisor,
        inherited: TransactionalClient | None = None,
    ) -> None:
        self._settings = with_fixed_codec(transactional_settings(settings))
        self._settings["client.id"] = f"replay-{operation_id}"
        self._settings.pop("statistics.interval.ms", None)
        self._id = f"{TRANSACTIONAL_ID}{operation_id}"
        self._interrupt, self._say, self._fenced = supervisor.interrupt, supervisor.say, supervisor.fenced
        self._client = inherited
        self.unused = inherited is not None
        if inherited is not None:
            inherited.reassign(connection_error=self.connection_error, stopping=supervisor.interrupt)
        self._failures = 0
        self._pause = threading.Event()  # never set; used only to sleep

    @property
    def live(self) -> TransactionalClient:
        if self._client is None:
            raise AssertionError("the client is not created yet")
        return self._client

    def deadline(self) -> float:
        """Return the monotonic time at which a transaction that begins now times out."""
        return time.monotonic() + float(self._settings["transaction.timeout.ms"]) / 1000

    def committed(self) -> None:
        """Note that a transaction committed."""
        self._failures, self.unused = 0, False

    def fence(self) -> None:
        """Replace the client by a new one that fences all earlier clients of this id."""
        while True:
            self.destroy()
            self.wait(0)  # stop here if the lease was lost, so that the new owner is not fenced
            self._client = TransactionalClient(
                self._settings,
                self._id,
                statistics=lambda _: None,
                connection_error=self.connection_error,
                stopping=self._interrupt,
            )
            try:
                self._client.fence(lambda error: self._say(f"Waiting for the brokers: {error.str()}"))
                return self._fenced()
            except TransactionFailed as failed:
                self.rest(f"Cannot begin a transaction: {failed}")

    def rest(self, text: str) -> None:
        """Wait after a failure, longer after each further one."""
        self._say(text)
        bound = time.monotonic() + _REST * 2 ** min(self._failures, 4)
        self._failures += 1
        while (left := bound - time.monotonic()) > 0:
            self.wait(min(0.2, left))

    def wait(self, seconds: float) -> None:
        """Wait and serve the client. Raise ClientStopped if the replay is interrupted."""
        if seconds > 0:
            self._pause.wait(seconds)
        if self._interrupt():
            raise ClientStopped
        if self._client is not None and self._client.alive:
            self._client.serve()

    def connection_error(self, error: KafkaError) -> None:
        logger.debug(**with_fields("replay connection error", error=error.str()))

    def destroy(self) -> None:
        if self._client is not None:
            self._client.destroy()
            self._client = None

    def close(self) -> None:
        """Destroy the client in the background, because librdkafka takes a fifth of a second to end its threads.

        A later client of this id fences it, as it fences the client of a killed process.
        """
        client, self._client = self._client, None
        if client is not None:
            threading.Thread(target=client.destroy, name="replay-client", daemon=True).start()

    def hand_on(self) -> TransactionalClient | None:
        """Return the client for the next strategy of this id."""
        client, self._client = self._client, None
        return client
