"""Decide whether and when a failed message is sent again, and queue it until then."""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.config import DEFAULT_RETRIABLE, RetryConfig
from producer_core.errors import ConfigError
from producer_core.kafka.classify import Failure, failure_of, lookup, retriable_codes
from producer_core.messages import Message, MessageStatus

logger = queued_logger(__name__)


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Send the message again after `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not send the message again automatically."""

    reason: str


def decide(
    failure: Failure, attempt: int, config: RetryConfig, *, jitter: Callable[[], float] = random.random
) -> RetryAfter | GiveUp:
    """Return the decision after failed attempt number `attempt` (from 1). Only transient failures are retried.

    The default `retriable_errors` cover every code that the error table calls temporary or timed out. A list given by
    the user names the only codes that are retried.
    """
    if failure.kind not in ("temporary", "timed_out") and failure.code not in _CLIENT_FAILED:
        return GiveUp(f"{failure.code} is not transient")
    if not _is_retriable(failure, config):
        return GiveUp(f"{failure.code} is not in retriable_errors")
    if attempt > config.max_retries:
        retries = "the only retry" if config.max_retries == 1 else f"all {config.max_retries} retries"
        return GiveUp(f"{retries} failed")
    return RetryAfter(delay(attempt, config, jitter=jitter))


def delay(attempt: int, config: RetryConfig, *, jitter: Callable[[], float] = random.random) -> float:
    """Return the seconds between failed attempt number `attempt` (from 1) and the next one.

    The delay grows by `backoff_multiplier` up to `max_delay_ms`. Jitter shortens it by up to half, so that messages that
    failed together are not retried together.
    """
    exponent = min(attempt - 1, 1000)  # a larger one overflows, and the cap is reached long before
    try:
        uncapped = config.initial_delay_ms * config.backoff_multiplier**exponent
    except OverflowError:
        uncapped = float("inf")
    seconds = min(uncapped, config.max_delay_ms) / 1000
    return seconds * (0.5 + 0.5 * jitter()) if config.jitter else seconds


def _is_retriable(failure: Failure, config: RetryConfig) -> bool:
    names = frozenset(config.retriable_errors)
    return names == _DEFAULT_NAMES or failure.code in _codes(names)


_DEFAULT_NAMES = frozenset(DEFAULT_RETRIABLE)
_CLIENT_FAILED = frozenset({"OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "_FATAL", "_INCONSISTENT"})
"""Codes of a client that is out of step with the broker and is re-created. The message itself is valid."""


@cache
def _codes(names: frozenset[str]) -> frozenset[str]:
    return retriable_codes(tuple(names))


def _check_names(config: RetryConfig) -> None:
    """Raise ConfigError for an unknown name at the start, not at the first failure."""
    try:
        retriable_codes(config.retriable_errors)
    except ConfigError as error:
        raise ConfigError(f"RetryConfig: retriable_errors: {error.what}", fix=error.fix) from error


_MAX_COUNTED = 10_000
"""Messages whose retries `schedule_retry` counts by id; the oldest is dropped first."""


class RetryManager:
    """Queues items until they are due, and passes them to `send` on one thread.

    An item is any object with a `topic`. An exception in `send` is logged, and the next item follows.
    """

    def __init__(
        self,
        config: RetryConfig | None = None,
        *,
        send: Callable[[Any], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config or RetryConfig()
        _check_names(self.config)
        self._send = send
        self._clock = clock
        # Guards the fields below. Code acquires the lock itself: an interrupt inside Condition would leave it locked.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._heap: list[tuple[float, int, Any]] = []
        self._order = itertools.count()
        self._running = False
        self._thread: threading.Thread | None = None
        self._counts: Counter[str] = Counter()
        self._retries: dict[str, int] = {}  # by message id: retries counted by `schedule_retry`

    def start(self) -> None:
        """Start the thread; a second call has no effect."""
        with self._lock:
            if self._running:
                return
            self._running = True
            self._thread = threading.Thread(target=self._run, name="producer-core-retry", daemon=True)
            self._thread.start()

    def stop(self) -> list[Any]:
        """Stop at once, and return the waiting items in the order of their due times."""
        with self._lock:
            self._running = False
            self._changed.notify_all()
            waiting = [item for _, _, item in sorted(self._heap, key=lambda entry: entry[:2])]
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5)
        return waiting

    def schedule(self, item: Any, seconds: float, *, counted: bool = True) -> None:
        """Pass `item` to `send` after `seconds`. Use `counted=False` for an item that waits without a failure."""
        with self._lock:
            heapq.heappush(self._heap, (self._clock() + seconds, next(self._order), item))
            self._counts["total"] += counted
            self._changed.notify()

    def settled(self, item: Any, ok: bool) -> None:
        """Count the outcome of an item that was retried."""
        with self._lock:
            self._retries.pop(getattr(item, "id", ""), None)
            self._counts["successful" if ok else "failed"] += 1

    # the public interface

    def should_retry(self, error: Exception | str, retry_count: int) -> bool:
        """Return whether `error` (an exception or a code) would be retried after `retry_count` retries."""
        return isinstance(decide(_failure(error), retry_count + 1, self.config), RetryAfter)

    def calculate_delay(self, retry_count: int) -> float:
        """Return the seconds before retry number `retry_count` (from 0)."""
        return delay(retry_count + 1, self.config)

    def schedule_retry(self, message: Any, error: Exception | str) -> bool:
        """Queue `message` for its next attempt; if `error` is not retriable, log an error and return False.

        `send` receives the message with a higher `retry_count`. `max_retries` limits the retries of a message id, even if an
        older copy of the message is scheduled again; `settled` ends the count.
        """
        with self._lock:
            message_id: str | None = getattr(message, "id", None)
            retries = max(getattr(message, "retry_count", 0), self._retries.pop(message_id or "", 0))
            decision = decide(_failure(error), retries + 1, self.config)
            if message_id is not None:
                self._remember(message_id, retries + isinstance(decision, RetryAfter))
        if isinstance(decision, RetryAfter):
            self.schedule(_as_retry(message, retries + 1, error), decision.seconds)
            return True
        logger.error(**with_fields("message not retriable", topic=message.topic, reason=decision.reason))
        with self._lock:
            self._counts["failed"] += 1
        return False

    def _remember(self, message_id: Any, retries: int) -> None:
        self._retries[message_id] = retries
        if len(self._retries) > _MAX_COUNTED:
            del self._retries[next(iter(self._retries))]

    @property
    def retry_queues(self) -> dict[str, list[tuple[float, Any]]]:
        """The waiting items by topic, as pairs of due time (on the manager's clock) and item."""
        queues: dict[str, list[tuple[float, Any]]] = {}
        with self._lock:
            for due, _, item in sorted(self._heap, key=lambda entry: entry[:2]):
                queues.setdefault(item.topic, []).append((due, item))
        return queues

    @property
    def pending(self) -> int:
        """The number of waiting items."""
        return len(self._heap)

    @property
    def stats(self) -> dict[str, Any]:
        return self.get_stats()

    def get_stats(self) -> dict[str, Any]:
        queues = {topic: len(items) for topic, items in self.retry_queues.items()}
        return {
            "total_retries": self._counts["total"],
            "successful_retries": self._counts["successful"],
            "failed_retries": self._counts["failed"],
            "dlq_messages": self._counts["failed"],
            "pending_retries": sum(queues.values()),
            "retry_queues": queues,
        }

    def _run(self) -> None:
        while (item := self._next()) is not None:
            try:
                if self._send is not None:
                    self._send(item)
            except Exception:
                logger.exception(**with_fields("retry failed", topic=item.topic))

    def _next(self) -> Any:
        """Wait until an item is due and return it; None when stopped."""
        with self._lock:
            while self._running:
                if not self._heap:
                    self._changed.wait()
                elif (left := self._heap[0][0] - self._clock()) > 0:
                    self._changed.wait(min(left, threading.TIMEOUT_MAX))
                else:
                    return heapq.heappop(self._heap)[2]
        return None


def _as_retry(message: Any, retry_count: int, error: Exception | str) -> Any:
    """Return the message with its retry count and error; an object that is not a Message is returned unchanged."""
    if not isinstance(message, Message):
        return message
    return replace(message, retry_count=retry_count, status=MessageStatus.RETRYING, last_error=str(error))


def _failure(error: Exception | str) -> Failure:
    """Return the failure of an exception: of its KafkaError, of its class, or of the nearest base class in the table.

    An exception unrelated to Kafka is permanent, because sending the message again does not help.
    """
    if isinstance(error, str):
        return failure_of(error)
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return failure_of(error.args[0])
    for kind in type(error).__mro__:
        try:
            return lookup(kind.__name__)
        except ConfigError:
            continue
    return replace(failure_of(type(error).__name__), kind="permanent")
