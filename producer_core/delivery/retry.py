"""A retry: whether a failed message is sent again, when, and the queue in which it waits."""

from __future__ import annotations

import heapq
import itertools
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from producer_core.config import DEFAULT_RETRIABLE, RetryConfig
from producer_core.errors import ConfigError
from producer_core.kafka.classify import Failure, failure_of, lookup, retriable_codes
from producer_core.messages import Message, MessageStatus

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Send it again in so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not send it again by itself."""

    reason: str


def decide(
    failure: Failure, attempt: int, config: RetryConfig, *, jitter: Callable[[], float] = random.random
) -> RetryAfter | GiveUp:
    """What follows failed try number `attempt` (from 1). Only what may pass by itself is tried again.

    The default `retriable_errors` stand for everything the failures table calls temporary or timed out;
    a list of the user's own names the only codes that are retried.
    """
    if failure.kind not in ("temporary", "timed_out") and failure.code not in _CLIENT_BROKE:
        return GiveUp(f"{failure.code} does not pass by itself")
    if not _allowed(failure, config):
        return GiveUp(f"{failure.code} is not among retriable_errors")
    if attempt > config.max_retries:
        return GiveUp(f"{config.max_retries} retries are used up")
    return RetryAfter(delay(attempt, config, jitter=jitter))


def delay(attempt: int, config: RetryConfig, *, jitter: Callable[[], float] = random.random) -> float:
    """Seconds before the resend that follows failed try `attempt` (from 1): doubling, capped, jittered.

    Jitter shortens it by up to half, which spreads a burst of failures out again.
    """
    exponent = min(attempt - 1, 1000)  # beyond, the power overflows; the cap was reached long before
    try:
        grown = config.initial_delay_ms * config.backoff_multiplier**exponent
    except OverflowError:
        grown = float("inf")
    seconds = min(grown, config.max_delay_ms) / 1000
    return seconds * (0.5 + 0.5 * jitter()) if config.jitter else seconds


def _allowed(failure: Failure, config: RetryConfig) -> bool:
    names = frozenset(config.retriable_errors)
    return names == _EVERYTHING or failure.code in _codes(names)


_EVERYTHING = frozenset(DEFAULT_RETRIABLE)
_CLIENT_BROKE = frozenset({"OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "_FATAL", "_INCONSISTENT"})
"""Nothing is wrong with the message: the client lost step with the broker, and a new one takes its place."""


@cache
def _codes(names: frozenset[str]) -> frozenset[str]:
    return retriable_codes(tuple(names))


_REMEMBERED = 10_000
"""Messages whose retries `schedule_retry` counts by their id; the oldest is forgotten first."""


class RetryManager:
    """Items that wait for their time, on one heap, handed to `send` by one thread.

    An item is anything with a `topic`. `send` is called on the manager's thread; what it raises is logged
    and the next item follows.
    """

    def __init__(
        self,
        config: RetryConfig | None = None,
        *,
        send: Callable[[Any], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config or RetryConfig()
        retriable_codes(
            self.config.retriable_errors
        )  # an unknown name is an error now, not at the first failure
        self._send = send
        self._clock = clock
        # Guards the fields below; taken by its own name, for an interrupt inside Condition would leave it taken.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._heap: list[tuple[float, int, Any]] = []
        self._order = itertools.count()
        self._running = False
        self._thread: threading.Thread | None = None
        self._counts: Counter[str] = Counter()
        self._tries: dict[str, int] = {}  # retries by message id, of `schedule_retry`; the latest ones

    def start(self) -> None:
        """Start handing out; a second call changes nothing."""
        with self._lock:
            if self._running:
                return
            self._running = True
            self._thread = threading.Thread(target=self._run, name="producer-core-retry", daemon=True)
            self._thread.start()

    def stop(self) -> list[Any]:
        """Stop handing out, at once; returns what still waits, in the order of its time."""
        with self._lock:
            self._running = False
            self._changed.notify_all()
            waiting = [item for _, _, item in sorted(self._heap, key=lambda entry: entry[:2])]
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5)
        return waiting

    def schedule(self, item: Any, seconds: float, *, counted: bool = True) -> None:
        """Hand `item` out in so many seconds. `counted=False` for what waits without having failed."""
        with self._lock:
            heapq.heappush(self._heap, (self._clock() + seconds, next(self._order), item))
            self._counts["total"] += counted
            self._changed.notify()

    def settled(self, item: Any, ok: bool) -> None:
        """How an item that had been retried ended."""
        with self._lock:
            self._tries.pop(getattr(item, "id", ""), None)
            self._counts["successful" if ok else "failed"] += 1

    # the contract

    def should_retry(self, error: Exception | str, retry_count: int) -> bool:
        """Whether `error` (an exception or a code) would be retried after so many retries."""
        return isinstance(decide(_failure(error), retry_count + 1, self.config), RetryAfter)

    def calculate_delay(self, retry_count: int) -> float:
        """Seconds before retry number `retry_count` (from 0)."""
        return delay(retry_count + 1, self.config)

    def schedule_retry(self, message: Any, error: Exception | str) -> bool:
        """Queue `message` for its next try; False, with an error in the log, when it is not retriable.

        What is handed out has the risen `retry_count`, and `max_retries` holds for a message's id, whichever of its
        values is scheduled again; `settled` ends the count.
        """
        with self._lock:
            message_id: str | None = getattr(message, "id", None)
            done = max(getattr(message, "retry_count", 0), self._tries.pop(message_id or "", 0))
            decision = decide(_failure(error), done + 1, self.config)
            if message_id is not None:
                self._remember(message_id, done + isinstance(decision, RetryAfter))
        if isinstance(decision, RetryAfter):
            self.schedule(_counted(message, done + 1, error), decision.seconds)
            return True
        logger.error("message not retriable", extra={"topic": message.topic, "reason": decision.reason})
        with self._lock:
            self._counts["failed"] += 1
        return False

    def _remember(self, message_id: Any, tries: int) -> None:
        self._tries[message_id] = tries
        if len(self._tries) > _REMEMBERED:
            del self._tries[next(iter(self._tries))]

    @property
    def retry_queues(self) -> dict[str, list[tuple[float, Any]]]:
        """What waits, by topic: pairs of its time (on the manager's clock) and the item."""
        queues: dict[str, list[tuple[float, Any]]] = {}
        with self._lock:
            for due, _, item in sorted(self._heap, key=lambda entry: entry[:2]):
                queues.setdefault(item.topic, []).append((due, item))
        return queues

    @property
    def pending(self) -> int:
        """How many wait."""
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
                logger.exception("retry failed", extra={"topic": item.topic})

    def _next(self) -> Any:
        """The next item whose time has come; None when stopped."""
        with self._lock:
            while self._running:
                if not self._heap:
                    self._changed.wait()
                elif (left := self._heap[0][0] - self._clock()) > 0:
                    self._changed.wait(min(left, threading.TIMEOUT_MAX))
                else:
                    return heapq.heappop(self._heap)[2]
        return None


def _counted(message: Any, tries: int, error: Exception | str) -> Any:
    """The message as it waits for this retry; what is no Message waits as it is."""
    if not isinstance(message, Message):
        return message
    return replace(message, retry_count=tries, status=MessageStatus.RETRYING, last_error=str(error))


def _failure(error: Exception | str) -> Failure:
    """The failure behind an exception: the library's own, or its class's, or the nearest base class's in the table.

    An exception that has nothing to do with Kafka is permanent: sending again would not mend it.
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
