"""The telemetry publisher: sends batches to a topic, in order, from a thread and with a client of its own.

A batch that could not be sent waits (`waiting.py`) and goes first the next time, so that the fleet's curves have no
holes; its delivery report decides. A reader merges by (producer_id, sequence), so a batch that comes twice adds nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from producer_core._internal.librdkafka import client_log
from producer_core._internal.masking import mask_or_hide
from producer_core.config import ClientConfig, client_config
from producer_core.metrics.telemetry.recent_windows import RecentWindows, WindowShare
from producer_core.metrics.telemetry.send_queue import LostBatches, QueueBounds, QueuedBatch, SendQueue

if TYPE_CHECKING:
    from producer_core.metrics.batch import Batch

logger = logging.getLogger(__name__)

_CLOSE_BOUND = 5.0
_TOGETHER = 16
"""Batches handed to the client at once; the next are once all of these were reported."""
_POLL = 0.1
_PAUSES = (1.0, 2.0, 5.0, 10.0)
"""Seconds after a failure, and after each that follows it."""
_HOPELESS = ("MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "INVALID_MSG")
"""The broker objects to the record itself: it is given up, or nothing would ever be sent again."""
_A_DAY = 24 * 3600 * 1000


class TelemetryPublisher:
    """Owns one thread and one idempotent client; trouble is logged by kind, counted, never raised.

    `config` is what the producer's client was told, without our defaults (`ClientConfig.given`); idempotence, a
    delivery timeout of 120 s, a request timeout of 30 s and zstd are set only if absent. With `folder` what was not
    sent survives kill -9.
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
        self._settings = _settings(client_config(bootstrap_servers, _own(config or {}), prefix="telemetry"))
        self._client = Producer(self._settings)
        self._waiting = SendQueue(folder, bounds=bounds)
        self._latest = RecentWindows()
        self._wake = threading.Event()
        self._closing = threading.Event()  # nothing is taken any more
        self._ends_at = float("inf")  # monotonic; written by close()
        self._told: set[str] = set()  # codes logged since something was sent
        self._fatal = False
        self._thread = threading.Thread(target=self._run, name="producer-core-telemetry", daemon=True)
        self._thread.start()

    def publish(self, batch: Batch) -> None:
        """Take a batch, without waiting for a broker. Dropped silently once closing."""
        if self._closing.is_set():
            return
        for number in range(batch.begins, batch.sequence + 1):
            self._latest.made(number, self._clock())
        try:
            self._waiting.put(batch)
        except TypeError as error:  # orjson: text that is none
            self.counts["refused"] += 1
            logger.warning("telemetry has no JSON form", extra={"topic": self.topic, "error": str(error)})
        self._wake.set()

    def share(self) -> WindowShare:
        """How many of the latest windows are not on the topic."""
        return self._latest.share(self._clock())

    def lost(self) -> LostBatches:
        """What had no room since this was asked last."""
        return self._waiting.lost()

    @property
    def waiting(self) -> int:
        """Batches that are not on the topic yet, as far as is known."""
        return len(self._waiting)

    def close(self) -> None:
        """Send what waits, for at most 5 seconds, and let go; what could not be sent is a warning.

        With a folder it is sent at the next start.
        """
        if self._closing.is_set():
            return
        self._ends_at = time.monotonic() + _CLOSE_BOUND
        self._closing.set()
        self._wake.set()
        self._thread.join(_CLOSE_BOUND + 1.0)
        if self._waiting:
            extra = {"topic": self.topic, "batches": len(self._waiting), "kept": self._waiting.on_disk}
            logger.warning("telemetry not flushed", extra=extra)

    # the thread

    def _run(self) -> None:
        failures = 0
        while not self._over():
            sent, failed = self._round()
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

    def _over(self) -> bool:
        return time.monotonic() >= self._ends_at

    def _pause(self, seconds: float) -> None:
        """Short while closing, so that a failure is followed by another try, not by a hundred."""
        if not self._closing.wait(seconds):
            return
        self._poll(_POLL)

    def _round(self) -> tuple[int, int]:
        """Send the oldest and wait until each was reported; how many were handed over, and how many failed."""
        reports: dict[int, KafkaError | None] = {}
        handed = self._hand_over(reports)
        while len(reports) < len(handed) and not self._over() and not self._fatal:
            self._poll(_POLL)
        for number, entry in enumerate(handed):
            if number in reports:
                self._settle(entry, reports[number])
        if self._fatal:
            self._renew()
        good = sum(error is None for error in reports.values())
        return len(handed), len(handed) - good

    def _hand_over(self, reports: dict[int, KafkaError | None]) -> list[QueuedBatch]:
        handed: list[QueuedBatch] = []
        for entry, value in self._waiting.next(_TOGETHER):
            number = len(handed)

            def report(error: KafkaError | None, message: Any, number: int = number) -> None:
                reports[number] = error

            try:
                self._client.produce(self.topic, value, entry.producer_id.encode(), on_delivery=report)
            except BufferError:
                break
            except KafkaException as error:
                reports[number] = error.args[0]
            handed.append(entry)
        return handed

    def _settle(self, entry: QueuedBatch, error: KafkaError | None) -> None:
        if error is None:
            self.counts["sent"] += 1
            self._waiting.done(entry)
            self._latest.sent(entry.first, entry.sequence)
            if self._told:
                self._told.clear()
                logger.info("telemetry sent again", extra={"topic": self.topic})
            return
        self._failed(error)
        if error.name() in _HOPELESS:
            self._waiting.give_up(entry)

    def _poll(self, timeout: float) -> None:
        try:
            self._client.poll(timeout)
        except KafkaException as error:
            self._fatal = self._fatal or error.args[0].fatal()
            self._failed(error.args[0])

    def _renew(self) -> None:
        """The client broke for good; what it had is sent by a new one, under the same numbers."""
        self._discard()
        self._client = Producer(self._settings)
        self._fatal = False

    def _discard(self) -> None:
        """Let go of the client; what it did not send is still kept."""
        try:
            self._client.purge()
            self._client.poll(0)
        except KafkaException as error:
            logger.debug("telemetry client ended", extra={"error": mask_or_hide(error.args[0].str())})

    def _failed(self, error: KafkaError) -> None:
        code, text = error.name(), mask_or_hide(error.str())
        self.counts["failed"] += 1
        self.errors[code] += 1
        self.trouble = text
        if code not in self._told:  # a trouble that repeats is told when it begins; counted each time
            self._told.add(code)
            level, words = _LEVELS.get(code, (logging.WARNING, "telemetry not sent"))
            extra = {"topic": self.topic, "code": code, "error": text}
            logger.log(logging.INFO if self._closing.is_set() else level, words, extra=extra)


_LEVELS = {
    "OUT_OF_ORDER_SEQUENCE_NUMBER": (logging.WARNING, "telemetry out of order"),
    "NOT_LEADER_FOR_PARTITION": (logging.WARNING, "telemetry not sent, the leader moved (transient)"),
    "_PURGE_QUEUE": (logging.INFO, "telemetry given up at the end"),
    "_PURGE_INFLIGHT": (logging.INFO, "telemetry given up at the end"),
    "_DESTROY": (logging.INFO, "telemetry given up at the end"),
    "_INTR": (logging.INFO, "telemetry interrupted"),
}


def _own(config: Mapping[str, Any]) -> dict[str, Any]:
    """What the producer's client was told, without what belongs to that client alone."""
    ours = {"compression.type": "zstd", **config}  # a fifth of a ledger is left of it
    for name in ("client.id", "statistics.interval.ms"):
        ours.pop(name, None)
    if ours.get("message.timeout.ms") == _A_DAY:  # with a journal (guarantees.py)
        del ours["message.timeout.ms"]
    return ours


def _settings(config: ClientConfig) -> dict[str, Any]:
    settings = dict(config.settings)
    settings["statistics.interval.ms"] = 0
    settings.setdefault("logger", client_log())
    return settings
