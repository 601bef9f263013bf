"""Publish a producer's dead letters on a thread of its own, with a client of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from producer_core._internal.log_fields import with_fields
from producer_core._internal.masking import mask_or_hide
from producer_core._internal.queued_logger import queued_logger
from producer_core._internal.read_activity import mark_background_thread
from producer_core.dlq.topics.topic_sender import PublishingProducer
from producer_core.errors import ProducerClosed, StoreError

logger = queued_logger(__name__)

_CHECK_S = 30.0
"""Seconds between two searches for dead letters that no thread announced, such as those of a process that ended."""
_SOON_S = 1.0
_COLLECT_S = 0.3
"""Seconds from a new dead letter to the look into the store, so that many are listed together."""
_REST_S = 1.0
"""Seconds from the start of one look into the store to the next, so that other users of the store have their turn. A look
that continues a backlog follows at once."""
_PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds of the pause after the first failure in a row, the second, and so on."""
_CLOSING_PAUSE_S = 0.2
FAILING_AFTER_S = 300.0
"""Seconds without a complete publication after which the alert `dead_letter_topic_failing` fires."""
_SLOW_S = 60.0
"""Seconds without progress after which a step that still runs is a failure."""
_SLOW = (
    f"no progress for {_SLOW_S:.0f} s; a function that chooses the topic and blocks holds up all dead letters"
)
_LAST_STEP_S = 1.0
"""Seconds at the end of a stop that the client and the thread each get to end, or a quarter of a shorter time limit."""


@dataclass(frozen=True)
class Round:
    """The result of one step. `more`: the next step follows at once. `again`: after a pause. `soon`: after a second, or at
    once for new dead letters. `trouble`: why, if it is an error."""

    again: bool = False
    more: bool = False
    trouble: str = ""
    soon: bool = False

    def with_other(self, other: Round) -> Round:
        """Return the result of both steps."""
        return Round(
            self.again or other.again,
            self.more or other.more,
            self.trouble or other.trouble,
            self.soon or other.soon,
        )


DONE = Round()


@dataclass(frozen=True)
class FailingPublication:
    """Why dead letters wait for their topic, and for how many seconds some have waited without a break."""

    reason: str
    seconds: float

    @property
    def limit(self) -> float:
        """Return the seconds after which it is an alert."""
        return FAILING_AFTER_S

    @property
    def is_long(self) -> bool:
        return self.seconds >= self.limit


class Publications(Protocol):
    """Dead letters to publish. Only the publisher's thread calls `publish_next`."""

    def publish_next(self, producer: Callable[[], PublishingProducer]) -> Round:
        """Publish what there is. `producer` opens the client, so that it is not opened without need."""


class DeadLetterPublisher:
    """Publishes from a source. Without dead letters it opens no client.

    A failure is logged when it begins and when it ends, and is tried again until `stop`. A dead letter that cannot be
    published is never a dead letter of this publisher's client: a replay has no dead letters.
    """

    def __init__(self, source: Publications, open_producer: Callable[[], PublishingProducer]) -> None:
        self._source = source
        self._open = open_producer
        self._producer: PublishingProducer | None = None
        self._lock = threading.Lock()  # guards `_producer`; never held while a client is opened or closed
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._deadline = float("inf")  # monotonic time; set by stop()
        self._trouble = ""
        self._failing_since = 0.0  # monotonic time; of `_trouble`
        # The monotonic time of the latest progress of a step; infinite between two steps.
        self._progressed_at = float("inf")
        self._thread = threading.Thread(target=self._run, name="dead-letter-publisher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Look for dead letters now. Never blocks."""
        if not self._wake.is_set():
            self._wake.set()

    @property
    def closing(self) -> bool:
        """Whether `stop` was called: there is time for what is new, and not for what has failed for long."""
        return self._stopping.is_set()

    @property
    def stopping(self) -> bool:
        """Whether the publisher must end now: the time limit of its stop has passed."""
        return time.monotonic() >= self._deadline

    def failing(self) -> FailingPublication | None:
        """Return the failure since the last time that no dead letter waited for its topic. Any thread may call this.

        A step without progress for long is a failure from now on, until it ends.
        """
        progressed_at = self._progressed_at
        if not self._trouble and time.monotonic() - progressed_at >= _SLOW_S:
            self._log(_SLOW, again=True, since=progressed_at)
        since, reason = self._failing_since, self._trouble
        return FailingPublication(reason, time.monotonic() - since) if reason else None

    def progressed(self) -> None:
        """Tell that the step that runs has settled some dead letters."""
        self._progressed_at = time.monotonic()

    def check_stopping(self) -> None:
        """Raise ProducerClosed if the publisher must end now."""
        if self.stopping:
            raise ProducerClosed

    def stop(self, timeout: float) -> None:
        """Publish what there is within `timeout` seconds, and end."""
        last_step = min(_LAST_STEP_S, timeout / 4)
        timeout -= 2 * last_step
        self._deadline = time.monotonic() + timeout
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        self._close_producer(last_step)  # ends a send that still waits
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(last_step)

    def _run(self) -> None:
        mark_background_thread()
        failures = 0
        while not self.stopping:
            self._wake.clear()
            began = time.monotonic()
            one = self._round()
            failures = failures + 1 if one.again else 0
            if one.again:
                self._pause(_PAUSES[min(failures, len(_PAUSES)) - 1])
            elif one.more:
                continue
            elif self._stopping.is_set() and not self._wake.is_set():
                return
            elif self._wake.wait(_SOON_S if one.soon else _CHECK_S):
                self._stopping.wait(max(_COLLECT_S, began + _REST_S - time.monotonic()))

    def _pause(self, seconds: float) -> None:
        """Wait after a failure. While closing the pause is short, so that there is time for another attempt."""
        if self._stopping.wait(seconds):
            threading.Event().wait(_CLOSING_PAUSE_S)

    def _round(self) -> Round:
        self.progressed()
        try:
            result = self._source.publish_next(self._opened)
        except StoreError as error:
            result = Round(again=True, trouble=str(error))
        except Exception as error:
            if self.stopping:
                return DONE
            logger.exception("dead letters not published")
            result = Round(again=True, trouble=f"{type(error).__name__}: {error}")
        finally:
            self._progressed_at = float("inf")
        self._log(result.trouble, again=result.again or result.more)
        return result

    def _log(self, trouble: str, *, again: bool, since: float | None = None) -> None:
        if trouble and trouble != self._trouble:
            logger.warning(**with_fields("dead letters wait for their topic", error=mask_or_hide(trouble)))
        elif self._trouble and not again:
            logger.warning("dead letters are published again")
        if trouble and not self._trouble:
            # Before the text, which other threads read.
            self._failing_since = time.monotonic() if since is None else since
        if trouble or not again:
            self._trouble = trouble

    def _opened(self) -> PublishingProducer:
        self.check_stopping()
        if self._producer is None:
            opened = self._open()  # may wait for the brokers
            with self._lock:
                if not self.stopping:
                    self._producer = opened
            if self._producer is None:  # `stop` has not seen this client
                opened.close(timeout=_LAST_STEP_S)
                raise ProducerClosed
        return self._producer

    def _close_producer(self, timeout: float) -> None:
        self._deadline = float("-inf")  # the thread may have ended earlier
        with self._lock:
            producer = self._producer
        if producer is not None:
            producer.close(timeout=timeout)
