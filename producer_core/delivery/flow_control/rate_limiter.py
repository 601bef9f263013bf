"""Limit the rate of messages and bytes, by topic and for the whole producer."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import TypedDict

from producer_core._internal.at_exit import run_before_threads_are_joined
from producer_core._internal.rate_settings import ALL_TOPICS, RateLimits
from producer_core._internal.withdrawal import check_withdrawn
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.flow_control.token_bucket import TokenBucket, ready_together
from producer_core.errors import ProducerClosed, RateLimited

_SHORT_FOR_S = 2.0
"""Seconds for which a replay leaves half of a limit to messages after one of them did not get its tokens at once."""
_MAX_DEBT_S = 1.0
"""Seconds of a limit that a replay may take in advance: its records may be larger than those before them."""
_STEP_S = 0.05
"""Seconds after which a wait notices that the producer is closed."""


class RateLimitStats(TypedDict):
    """Messages that a limit delayed, the sum of their delays in seconds, and messages that it refused."""

    delayed_messages: int
    delay_seconds: float
    refused_messages: int


@dataclass(eq=False, slots=True)
class Reservation:
    """The bytes of a message, and the monotonic time at which it may be sent.

    The time becomes earlier when a message before it gives up its wait.
    """

    size: int
    at: float


_Buckets = list[tuple[TokenBucket, float]]


class RateLimit:
    """The limits of one topic, or of all topics together. Reservations are granted in the order of the calls.

    The buckets contain the tokens of messages that wait. `_granted` are copies without those tokens, from which the waiting
    messages are planned again when one of them gives up.
    """

    def __init__(self, name: str, messages: float | None, size: float | None, burst: float) -> None:
        self._name = name
        self._messages = None if messages is None else TokenBucket(messages, burst)
        self._bytes = None if size is None else TokenBucket(size, burst)
        self._lock = threading.RLock()  # a signal handler may send too
        self._last = 0.0  # the latest reserved time: nothing overtakes a message that waits
        self._waiting: deque[Reservation] = deque()
        self._changes = 0  # of the buckets and of `_waiting`
        self._short_at = -math.inf  # the last time at which a message did not get its tokens at once
        self._granted: tuple[TokenBucket | None, TokenBucket | None] = (None, None)

    def reserve(self, size: int, now: float, max_wait: float) -> Reservation:
        """Reserve a message of `size` bytes. Raise RateLimited, and reserve nothing, if it would wait for longer than
        `max_wait` seconds."""
        with self._lock:
            self._grant(now)
            tokens = self._tokens(size)
            at = max(ready_together(tokens, now), self._last)
            if at > now:
                self._short_at = now
            if at - now > max_wait:
                raise RateLimited(
                    f"The rate limit of {self._name} has no room for the next {_text_of(at - now)} s.",
                    fix="Send later or more slowly, or raise the limit or max_block_ms.",
                    retry_after_s=at - now,
                )
            reservation = Reservation(size, at)
            if at > now:
                if not self._waiting:
                    self._granted = copy(self._messages), copy(self._bytes)
                self._waiting.append(reservation)
                self._last = at
            self._changes += 1
            self._take(self._tokens(size), at)  # a signal handler may have replaced the buckets
            return reservation

    def cancel(self, reservation: Reservation, now: float) -> None:
        """Return the tokens of a message that was not sent. The messages that wait behind it move up."""
        with self._lock:
            self._grant(now)
            if reservation not in self._waiting:
                self.give_back(reservation.size, reservation.at)
                return
            while not self._plan_without(reservation, now):
                pass  # a signal handler has sent

    def _plan_without(self, reservation: Reservation, now: float) -> bool:
        """Remove a waiting message and plan those behind it again. Return False, and change nothing, if a signal handler
        has sent in between."""
        changes, times = self._changes, []
        waiting = deque(one for one in tuple(self._waiting) if one is not reservation)
        buckets = copy(self._granted[0]), copy(self._granted[1])
        last = 0.0
        for one in waiting:
            tokens = self._tokens(one.size, buckets)
            last = min(one.at, max(ready_together(tokens, now), last))
            self._take(tokens, last)
            times.append(last)
        # No call between this comparison and the assignment.
        if self._changes != changes:
            return False
        self._waiting, (self._messages, self._bytes), self._last = waiting, buckets, last
        for one, at in zip(tuple(waiting), times, strict=True):
            one.at = min(one.at, at)
        return True

    def _grant(self, now: float) -> None:
        """Note that the messages whose time has come do not wait any more."""
        while self._waiting and self._waiting[0].at <= now:
            passed = self._waiting.popleft()
            self._changes += 1
            self._take(self._tokens(passed.size, self._granted), passed.at)

    def take_now(self, size: int, now: float) -> bool:
        """Reserve a message if it may be sent at once, and return whether that is so."""
        with self._lock:
            self._changes += 1
            if not self._waiting and (self._messages is None or self._messages.take_now(1, now)):
                if self._bytes is None or self._bytes.take_now(size, now):
                    return True
                if self._messages is not None:
                    self._messages.give_back(1, now)
            self._short_at = now
            return False

    def charge(self, size: int, now: float, messages: int = 1) -> None:
        """Take the tokens of messages that are sent at once. Later messages wait until they are made up for."""
        with self._lock:
            self._changes += 1
            self._take(self._tokens(size, messages=messages), now)
            if self._waiting:
                self._take(self._tokens(size, self._granted, messages), now)

    def rate_for_replays(self, mean_bytes: float, now: float) -> float:
        """Return the messages per second that a replay may take: half of the limit while messages are short of it, and none
        while the replay has taken more than the limit of a second."""
        with self._lock:
            self._grant(now)
            buckets = self._tokens(1)
            if ready_together(buckets, now) - max(now, self._last) > _MAX_DEBT_S:
                return 0.0
            rate = min(bucket.rate / (1 if bucket is self._messages else mean_bytes) for bucket, _ in buckets)
            return rate / 2 if self._waiting or now - self._short_at < _SHORT_FOR_S else rate

    @property
    def bytes_per_second(self) -> float | None:
        return None if self._bytes is None else self._bytes.rate

    def give_back(self, size: int, taken_at: float) -> None:
        """Return the tokens of a message that was not sent. They were taken at this monotonic time."""
        with self._lock:
            self._changes += 1
            granted = self._tokens(size, self._granted) if self._waiting else []
            for bucket, tokens in [*self._tokens(size), *granted]:
                bucket.give_back(tokens, taken_at)

    def _tokens(
        self,
        size: int,
        buckets: tuple[TokenBucket | None, TokenBucket | None] | None = None,
        messages: int = 1,
    ) -> _Buckets:
        wanted = zip(buckets or (self._messages, self._bytes), (messages, size), strict=True)
        return [(bucket, tokens) for bucket, tokens in wanted if bucket is not None]

    @staticmethod
    def _take(tokens: _Buckets, at: float) -> None:
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
        self.counts_bytes = bool(limits.bytes)
        """Whether any limit is in bytes per second."""
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
                    earlier.give_back(size, now)
                return False
        return True

    def _size_of(self, delivery: Delivery) -> int:
        return size_of(delivery) if self.counts_bytes else 0

    def _limits_of(self, topic: str) -> tuple[RateLimit, ...]:
        """Return the limits to reserve one after the other, with the wait for each in between."""
        return self._by_topic.get(topic, self._all_topics)

    def acquire(
        self,
        delivery: Delivery,
        max_wait: float,
        *,
        before_wait: Callable[[], None] = lambda: None,
        check: Callable[[], None] = lambda: None,
    ) -> float:
        """Wait until the message may be sent, and return the seconds that the wait took.

        Raise RateLimited at once if the wait would exceed `max_wait` seconds, and ProducerClosed after `stop`. An error of
        `check`, which is called before each step of the wait, ends the wait.
        """
        size, waited = self._size_of(delivery), 0.0
        reserved: list[tuple[RateLimit, Reservation]] = []
        try:
            for limit in self._limits_of(delivery.topic):
                now = self._monotonic()
                reservation = limit.reserve(size, now, max_wait - waited)
                reserved.append((limit, reservation))
                if reservation.at > now:
                    before_wait()
                    self._wait(reservation, check)
                    waited += max(0.0, reservation.at - now)
        except BaseException as error:
            for limit, reservation in reserved:
                limit.cancel(reservation, self._monotonic())
            self._count_refusal(error)
            raise
        if waited:
            self._count_delay(waited)
        return waited

    def _wait(self, reservation: Reservation, check: Callable[[], None]) -> None:
        """Wait in short steps: a signal handler that closes the producer could not set an event that its thread awaits."""
        pause = threading.Event()
        while (left := reservation.at - self._monotonic()) > 0:
            if self._stopped:
                raise ProducerClosed
            check_withdrawn()
            check()
            pause.wait(min(left, _STEP_S))

    def charge(self, delivery: Delivery) -> None:
        """Take the tokens of a message that is sent again, without a wait."""
        self.charge_many(delivery.topic, 1, self._size_of(delivery))

    def charge_many(self, topic: str, messages: int, size: int) -> None:
        """Take the tokens of messages to a topic, of `size` bytes together, without a wait."""
        for limit in self._limits_of(topic):
            limit.charge(size, self._monotonic(), messages)

    def rate_of(self, topic: str, mean_bytes: float) -> float | None:
        """Return the messages of this mean size per second that a replay to a topic may send, or None without a limit."""
        now = self._monotonic()
        rates = (limit.rate_for_replays(mean_bytes, now) for limit in self._limits_of(topic))
        return min(rates, default=None)

    def bytes_of(self, topic: str) -> float | None:
        """Return the lowest limit in bytes per second that applies to a topic, or None without one."""
        limits = (limit.bytes_per_second for limit in self._limits_of(topic))
        return min((limit for limit in limits if limit is not None), default=None)

    def now(self) -> float:
        """Return the time of the limits, in monotonic seconds."""
        return self._monotonic()

    def give_back(self, delivery: Delivery, taken_at: float) -> None:
        """Return the tokens of a message that was not accepted. They were taken at this time of `now`.

        Tokens that the limit has made up for since are not returned, because messages could exceed its burst.
        """
        for limit in self._limits_of(delivery.topic):
            limit.give_back(self._size_of(delivery), taken_at)

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


def _text_of(seconds: float) -> str:
    return f"{seconds:.3g}" if seconds < 100 else f"{seconds:,.0f}"


def size_of(delivery: Delivery) -> int:
    """Return the bytes of a message that the limits count: key, value and headers, without the message id."""
    size = len(delivery.key or b"") + len(delivery.value or b"")
    return size + sum(len(name) + len(value or b"") for name, value in delivery.headers)
