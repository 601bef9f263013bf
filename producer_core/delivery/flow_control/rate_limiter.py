"""Limit the rate of messages and bytes, by topic and for the whole producer."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import TypedDict

from producer_core._internal.at_exit import run_before_threads_are_joined
from producer_core._internal.rate_settings import ALL_TOPICS, RateLimits
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.flow_control.token_bucket import TokenBucket, ready_together
from producer_core.errors import ProducerClosed, RateLimited

_STEP_S = 0.05
"""Seconds after which a wait notices that the producer is closed."""


class RateLimitStats(TypedDict):
    """Messages that a limit delayed, the sum of their delays in seconds, and messages that it refused."""

    delayed_messages: int
    delay_seconds: float
    refused_messages: int


class RateLimit:
    """The limits of one topic, or of all topics together. Reservations are granted in the order of the calls."""

    def __init__(self, name: str, messages: float | None, size: float | None, burst: float) -> None:
        self._name = name
        self._messages = None if messages is None else TokenBucket(messages, burst)
        self._bytes = None if size is None else TokenBucket(size, burst)
        self._lock = threading.RLock()  # a signal handler may send too
        self._last = 0.0  # the latest reserved time: nothing overtakes a message that waits

    def reserve(self, size: int, now: float, max_wait: float) -> float:
        """Reserve a message of `size` bytes and return the seconds until it may be sent.

        Raise RateLimited, and reserve nothing, if that is more than `max_wait`.
        """
        with self._lock:
            tokens = self._tokens(size)
            at = max(ready_together(tokens, now), self._last)
            if at - now > max_wait:
                raise RateLimited(
                    f"The rate limit of {self._name} has no room for the next {at - now:.3g} s.",
                    fix="Send later or more slowly, or raise the limit or max_block_ms.",
                    retry_after_s=at - now,
                )
            self._take(tokens, at)
            self._last = at
            return at - now

    def take_now(self, size: int, now: float) -> bool:
        """Reserve a message if it may be sent at once, and return whether that is so."""
        with self._lock:
            if self._last > now or (self._messages is not None and not self._messages.take_now(1, now)):
                return False
            if self._bytes is None or self._bytes.take_now(size, now):
                return True
            if self._messages is not None:
                self._messages.give_back(1)
            return False

    def charge(self, size: int, now: float) -> None:
        """Take the tokens of a message that is sent at once. Later messages wait until they are made up for."""
        with self._lock:
            self._take(self._tokens(size), now)

    def give_back(self, size: int) -> None:
        """Return the tokens of a message that was not sent."""
        with self._lock:
            for bucket, tokens in self._tokens(size):
                bucket.give_back(tokens)

    def _tokens(self, size: int) -> list[tuple[TokenBucket, float]]:
        wanted = ((self._messages, 1), (self._bytes, size))
        return [(bucket, tokens) for bucket, tokens in wanted if bucket is not None]

    @staticmethod
    def _take(tokens: list[tuple[TokenBucket, float]], at: float) -> None:
        for bucket, count in tokens:
            bucket.take(count, at)


class RateLimiter:
    """Delays messages until the limits of their topic, and then those of the producer, have room. Any thread may call it.

    `monotonic` returns seconds.
    """

    def __init__(self, limits: RateLimits, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._all_topics = self._limits(limits, ALL_TOPICS)
        topics = (limits.messages.keys() | limits.bytes.keys()) - {ALL_TOPICS}
        self._by_topic = {topic: (*self._limits(limits, topic), *self._all_topics) for topic in topics}
        self._counts_bytes = bool(limits.bytes)
        self._stopped = False
        self._lock = threading.RLock()  # guards the counts
        self._delayed, self._refused, self._seconds = 0, 0, 0.0

    @staticmethod
    def _limits(limits: RateLimits, topic: str) -> tuple[RateLimit, ...]:
        messages, size = limits.messages.get(topic), limits.bytes.get(topic)
        if messages is None and size is None:
            return ()
        name = "the producer" if topic == ALL_TOPICS else f"topic {topic}"
        return (RateLimit(name, messages, size, limits.burst),)

    def take_now(self, delivery: Delivery) -> bool:
        """Reserve a message if it may be sent at once, and return whether that is so. The usual case, and quicker."""
        limits = self._limits_of(delivery.topic)
        if not limits:
            return True
        now, size = self._monotonic(), self._size_of(delivery)
        for taken, limit in enumerate(limits):
            if not limit.take_now(size, now):
                for earlier in limits[:taken]:
                    earlier.give_back(size)
                return False
        return True

    def _size_of(self, delivery: Delivery) -> int:
        return size_of(delivery) if self._counts_bytes else 0

    def _limits_of(self, topic: str) -> tuple[RateLimit, ...]:
        """Return the limits to reserve one after the other, with the wait for each in between."""
        return self._by_topic.get(topic, self._all_topics)

    def acquire(
        self, delivery: Delivery, max_wait: float, *, before_wait: Callable[[], None] = lambda: None
    ) -> float:
        """Wait until the message may be sent, and return the seconds that the wait took.

        Raise RateLimited at once if the wait would exceed `max_wait` seconds, and ProducerClosed after `stop`.
        """
        size, waited = self._size_of(delivery), 0.0
        reserved: list[RateLimit] = []
        try:
            for limit in self._limits_of(delivery.topic):
                delay = limit.reserve(size, self._monotonic(), max_wait - waited)
                reserved.append(limit)
                if delay:
                    before_wait()
                    self._wait(delay)
                    waited += delay
        except BaseException as error:
            for limit in reserved:
                limit.give_back(size)
            self._count_refusal(error)
            raise
        if waited:
            self._count_delay(waited)
        return waited

    def _wait(self, seconds: float) -> None:
        """Wait in short steps: a signal handler that closes the producer could not set an event that its thread awaits."""
        until, pause = time.monotonic() + seconds, threading.Event()
        while (left := until - time.monotonic()) > 0:
            if self._stopped:
                raise ProducerClosed
            pause.wait(min(left, _STEP_S))

    def charge(self, delivery: Delivery) -> None:
        """Take the tokens of a message that is sent again, without a wait."""
        for limit in self._limits_of(delivery.topic):
            limit.charge(self._size_of(delivery), self._monotonic())

    def give_back(self, delivery: Delivery) -> None:
        """Return the tokens of a message that was not accepted."""
        for limit in self._limits_of(delivery.topic):
            limit.give_back(self._size_of(delivery))

    def stop(self) -> None:
        """End every wait; the messages are not accepted."""
        self._stopped = True

    def stop_at_exit(self) -> None:
        """Stop at interpreter exit, before threads are joined that may wait for this limiter."""
        stop = weakref.WeakMethod(self.stop)

        def stop_if_alive() -> None:
            if (method := stop()) is not None:
                method()

        run_before_threads_are_joined(stop_if_alive)

    def _count_delay(self, seconds: float) -> None:
        with self._lock:
            self._delayed += 1
            self._seconds += seconds

    def _count_refusal(self, error: BaseException) -> None:
        if isinstance(error, RateLimited):
            with self._lock:
                self._refused += 1

    def get_stats(self) -> RateLimitStats:
        with self._lock:
            return {
                "delayed_messages": self._delayed,
                "delay_seconds": self._seconds,
                "refused_messages": self._refused,
            }


def size_of(delivery: Delivery) -> int:
    """Return the bytes of a message that the limits count: key, value and the user's headers."""
    size = len(delivery.key or b"") + len(delivery.value or b"")
    return size + sum(len(name) + len(value or b"") for name, value in delivery.headers)
