"""Publish batches to a telemetry topic in order, on a separate thread and with a separate client.

A batch stays in the queue (`send_queue.py`) until its delivery report confirms it, and a failed batch is sent first the next
time, so that the charts of the fleet have no gaps. A reader merges by (producer_id, sequence), so a second copy of a batch
adds nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from producer_core._internal.librdkafka import Producer, queued_client_log
from producer_core._internal.log_fields import with_fields
from producer_core._internal.masking import mask_or_hide
from producer_core._internal.queued_logger import queued_logger
from producer_core._internal.token_source import TokenFailed, new_client
from producer_core.config import ClientConfig, client_config
from producer_core.metrics.telemetry.recent_windows import RecentWindows, WindowShare
from producer_core.metrics.telemetry.send_queue import LostBatches, QueueBounds, QueuedBatch, SendQueue

if TYPE_CHECKING:
    from producer_core.metrics.batch import Batch

logger = queued_logger(__name__)

_LAST_STEP_S = 1.0
"""Seconds at the end of a close in which the thread ends, or a quarter of a shorter timeout."""
_GROUP_SIZE = 16
"""Batches sent at once; the next ones follow when all of these are reported."""
_POLL_TIMEOUT = 0.1
_PAUSES = (1.0, 2.0, 5.0, 10.0)
"""Seconds of the pause after the first failure in a row, the second, and so on."""
_PERMANENT_ERRORS = ("MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "INVALID_MSG")
"""The broker rejects the record itself. Such a batch is dropped, because it would block all later ones."""
_DAY_MS = 24 * 3600 * 1000


class TelemetryPublisher:
    """Publishes with a thread and an idempotent client of its own. Errors are counted and logged by code, never raised.

    `config` is the configuration of the producer's client without this library's defaults (`ClientConfig.given`).
    Idempotence, a delivery timeout of 120 s, a request timeout of 30 s and zstd are set only if absent. With `folder`,
    unsent batches survive `kill -9`.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        config: Mapping[str, Any] | None = None,
        *,
        folder: Path | None = None,
        bounds: QueueBounds | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.topic = topic
        self.counts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.trouble = ""
        self._clock = clock
        self._settings = _settings(
            client_config(bootstrap_servers, _telemetry_config(config or {}), prefix="telemetry")
        )
        self._client = new_client(Producer, self._settings)
        self._queue = SendQueue(folder, bounds=bounds)
        self._windows = RecentWindows()
        self._wake = threading.Event()
        self._closing = threading.Event()  # no new batches
        self._deadline = float("inf")  # monotonic time; set by close()
        self._logged: set[str] = set()  # codes logged since the last success
        self._fatal = False
        self._thread = threading.Thread(target=self._run, name="producer-core-telemetry", daemon=True)
        self._thread.start()

    def publish(self, batch: Batch) -> None:
        """Queue a batch without waiting for a broker. Once the publisher is closing, the batch is dropped silently."""
        if self._closing.is_set():
            return
        for number in range(batch.begins, batch.sequence + 1):
            self._windows.made(number, self._clock())
        try:
            self._queue.put(batch)
        except TypeError as error:  # orjson refuses invalid text
            self.counts["refused"] += 1
            logger.warning(**with_fields("telemetry has no JSON form", topic=self.topic, error=str(error)))
        self._wake.set()

    def share(self) -> WindowShare:
        """Return how many of the latest windows are not on the topic."""
        return self._windows.share(self._clock())

    def lost(self) -> LostBatches:
        """Return the losses since the last call."""
        return self._queue.lost()

    @property
    def waiting(self) -> int:
        """The number of batches without a confirmation that they are on the topic."""
        return len(self._queue)

    def close(self, timeout: float = 5.0) -> None:
        """Send the queued batches and close the client within `timeout` seconds; log a warning if some are left.

        With a folder the rest is sent at the next start.
        """
        if self._closing.is_set():
            return
        self._deadline = time.monotonic() + timeout - min(_LAST_STEP_S, timeout / 4)
        self._closing.set()
        self._wake.set()
        self._thread.join(timeout)
        if self._queue:
            batches, kept = len(self._queue), self._queue.on_disk
            logger.warning(
                **with_fields("telemetry not flushed", topic=self.topic, batches=batches, kept=kept)
            )

    # the thread

    def _run(self) -> None:
        failures = 0
        while not self._timed_out():
            sent, failed = self._send_group()
            failures = failures + 1 if failed else 0
            if failed:
                self._pause(_PAUSES[min(failures, len(_PAUSES)) - 1])
            elif not sent:
                if self._closing.is_set():
                    break
                self._wake.wait(1.0)
                self._wake.clear()
                self._poll(0)
        self._discard()

    def _timed_out(self) -> bool:
        return time.monotonic() >= self._deadline

    def _pause(self, seconds: float) -> None:
        """Wait after a failure. While closing the pause is short, so that there is time for another attempt."""
        if not self._closing.wait(seconds):
            return
        self._poll(_POLL_TIMEOUT)

    def _send_group(self) -> tuple[int, int]:
        """Send the oldest batches and wait for their reports; return how many were sent and how many of them failed."""
        reports: dict[int, KafkaError | None] = {}
        sent = self._produce(reports)
        while len(reports) < len(sent) and not self._timed_out() and not self._fatal:
            self._poll(_POLL_TIMEOUT)
        for number, entry in enumerate(sent):
            if number in reports:
                self._settle(entry, reports[number])
        if self._fatal:
            self._replace_client()
        succeeded = sum(error is None for error in reports.values())
        return len(sent), len(sent) - succeeded

    def _produce(self, reports: dict[int, KafkaError | None]) -> list[QueuedBatch]:
        sent: list[QueuedBatch] = []
        for entry, value in self._queue.next(_GROUP_SIZE):
            number = len(sent)

            def report(error: KafkaError | None, message: Any, number: int = number) -> None:
                reports[number] = error

            try:
                self._client.produce(self.topic, value, entry.producer_id.encode(), on_delivery=report)
            except BufferError:
                break
            except KafkaException as error:
                reports[number] = error.args[0]
            sent.append(entry)
        return sent

    def _settle(self, entry: QueuedBatch, error: KafkaError | None) -> None:
        if error is None:
            self.counts["sent"] += 1
            self._queue.done(entry)
            self._windows.sent(entry.first, entry.sequence)
            if self._logged:
                self._logged.clear()
                logger.info(**with_fields("telemetry delivery has recovered", topic=self.topic))
            return
        self._failed(error)
        if error.name() in _PERMANENT_ERRORS:
            self._queue.give_up(entry)

    def _poll(self, timeout: float) -> None:
        try:
            self._client.poll(timeout)
        except KafkaException as error:
            self._fatal = self._fatal or error.args[0].fatal()
            self._failed(error.args[0])

    def _replace_client(self) -> None:
        """Replace a client after a fatal error. The new one sends the same batches under the same sequences."""
        self._discard()
        try:
            self._client = new_client(Producer, self._settings)
        except TokenFailed as error:  # tried again after the pause
            self._failed(error.args[0])
        else:
            self._fatal = False

    def _discard(self) -> None:
        """Purge the client. Batches that it did not send are still in the queue."""
        try:
            self._client.purge()
            self._client.poll(0)
        except KafkaException as error:
            logger.debug(**with_fields("telemetry client stopped", error=mask_or_hide(error.args[0].str())))

    def _failed(self, error: KafkaError) -> None:
        code, text = error.name(), mask_or_hide(error.str())
        self.counts["failed"] += 1
        self.errors[code] += 1
        self.trouble = text
        if code not in self._logged:  # a repeated error is counted each time and logged once
            self._logged.add(code)
            level, event = _LOG_EVENTS.get(code, (logging.WARNING, "telemetry not sent"))
            fields = with_fields(event, topic=self.topic, code=code, error=text)
            logger.log(logging.INFO if self._closing.is_set() else level, **fields)


_LOG_EVENTS = {
    "OUT_OF_ORDER_SEQUENCE_NUMBER": (logging.WARNING, "telemetry out of order"),
    "NOT_LEADER_FOR_PARTITION": (logging.WARNING, "telemetry not sent, the leader moved (transient)"),
    "_PURGE_QUEUE": (logging.INFO, "telemetry not sent before close"),
    "_PURGE_INFLIGHT": (logging.INFO, "telemetry not sent before close"),
    "_DESTROY": (logging.INFO, "telemetry not sent before close"),
    "_INTR": (logging.INFO, "telemetry interrupted"),
}


def _telemetry_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the producer's configuration without the settings that belong to its own client."""
    result = {"compression.type": "zstd", **config}  # zstd reduces a ledger to a fifth
    for name in ("client.id", "statistics.interval.ms"):
        result.pop(name, None)
    if result.get("message.timeout.ms") == _DAY_MS:  # set by guarantees.py for a producer with a journal
        del result["message.timeout.ms"]
    return result


def _settings(config: ClientConfig) -> dict[str, Any]:
    settings = dict(config.settings)
    settings["statistics.interval.ms"] = 0
    settings["logger"] = queued_client_log()
    return settings
