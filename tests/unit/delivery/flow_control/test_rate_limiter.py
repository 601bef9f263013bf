"""The rate limiter: order, scope, refusals and tokens that are returned."""

from __future__ import annotations

import threading

import pytest

from producer_core._internal.rate_settings import rate_limits
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.flow_control.rate_limiter import RateLimiter, size_of
from producer_core.errors import ProducerClosed, RateLimited
from tests.support import eventually


def limiter(clock=lambda: 100.0, **settings):
    return RateLimiter(rate_limits(settings), monotonic=clock)


def message(topic="orders", value=b"x", **options):
    return Delivery(b"id", 0, topic, None, value, **options)


def free(limiter, delivery):
    """Return how many messages the limiter lets through without a wait."""
    count = 0
    try:
        while True:
            limiter.acquire(delivery, 0.0)
            count += 1
    except RateLimited:
        return count


def test_the_burst_passes_and_the_next_message_is_refused_with_the_time_to_wait():
    limited = limiter(max_messages_per_second=10)

    assert free(limited, message()) == 10
    with pytest.raises(RateLimited, match=r"the producer has no room for the next 0\.1 s") as refused:
        limited.acquire(message(), 0.05)
    assert refused.value.retry_after_s == pytest.approx(0.1)
    assert limited.get_stats() == {"delayed_messages": 0, "delay_seconds": 0.0, "refused_messages": 2}


def test_a_topic_without_a_limit_passes():
    limited = limiter(max_messages_per_second={"orders": 1})

    assert free(limited, message("orders")) == 1
    assert [limited.acquire(message("payments"), 0.0) for _ in range(100)] == [0.0] * 100


def test_a_refusal_by_the_common_limit_does_not_use_the_topics_tokens():
    now = 100.0
    limited = limiter(lambda: now, max_messages_per_second={"orders": 10, "*": 2})
    assert free(limited, message("payments")) == 2
    assert free(limited, message("orders")) == 0

    now = 105.0  # the common bucket is full again, with 2 tokens
    assert free(limited, message("orders")) == 2


def test_bytes_count_key_value_and_headers():
    sized = message(value=b"12345", headers=(("ab", b"cd"), ("e", None)))
    sized.key = b"key"

    assert size_of(sized) == 5 + 3 + 2 + 2 + 1
    assert size_of(message(value=None)) == 0


def test_a_message_larger_than_a_second_of_bytes_passes_once():
    limited = limiter(max_bytes_per_second=1000)

    assert free(limited, message(value=b"x" * 10_000)) == 1
    with pytest.raises(RateLimited) as refused:
        limited.acquire(message(value=b"x" * 1000), 0.0)
    assert refused.value.retry_after_s == pytest.approx(10.0)


def test_a_resend_takes_tokens_without_a_wait():
    limited = limiter(max_messages_per_second=10)
    for _ in range(8):
        limited.charge(message())

    assert free(limited, message()) == 2


def test_the_tokens_of_a_message_that_was_not_accepted_return():
    limited = limiter(max_messages_per_second=3)
    free(limited, message())
    limited.give_back(message())

    assert free(limited, message()) == 1


def test_stop_ends_a_wait():
    limited, errors = limiter(max_messages_per_second=0.001), []

    def wait():
        try:
            limited.acquire(message(), 10_000.0)
        except ProducerClosed as error:
            errors.append(error)

    free(limited, message())
    waiting = threading.Thread(target=wait)
    waiting.start()
    limited.stop()
    waiting.join(10)

    assert len(errors) == 1


def test_a_message_that_waits_is_not_overtaken_by_a_smaller_one():
    """A quick thread that sends small messages must not starve one that sends large messages."""
    limited = limiter(max_bytes_per_second=100, rate_limit_burst_ms=1000)
    limited.acquire(message(value=b"x" * 100), 0.0)
    released = threading.Event()
    limited._wait = lambda seconds: released.wait(10)
    large = threading.Thread(target=limited.acquire, args=(message(value=b"x" * 100), 60.0))
    large.start()
    limit = limited._all_topics[0]
    eventually(lambda: limit._last > 100.0)

    with pytest.raises(RateLimited) as refused:
        limited.acquire(message(value=b"x"), 0.0)
    assert refused.value.retry_after_s >= 1.0
    released.set()
    large.join(10)


def test_what_passes_at_once_is_what_would_not_wait():
    now = 100.0
    settings = {"max_messages_per_second": {"orders": 3, "*": 5}, "max_bytes_per_second": 100}
    first, second = limiter(lambda: now, **settings), limiter(lambda: now, **settings)

    for step in range(200):
        now = 100.0 + step * 0.07
        sent = message("orders" if step % 3 else "payments", b"x" * (step * 7 % 60))
        try:
            second.acquire(sent, 0.0)
            passes = True
        except RateLimited:
            passes = False
        assert first.take_now(sent) is passes


def test_nothing_overtakes_a_message_that_waits():
    limited = limiter(max_messages_per_second=10, rate_limit_burst_ms=0)
    limited._wait = lambda seconds: None
    limited.acquire(message(), 60.0)
    limited.acquire(message(), 60.0)  # reserved for 0.1 s later

    assert not limited.take_now(message())
