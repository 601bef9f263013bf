"""The rate limiter: order, scope, refusals and tokens that are returned."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core._internal.rate_settings import rate_limits
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.flow_control import rate_limiter as module
from producer_core.delivery.flow_control.rate_limiter import RateLimiter, size_of
from producer_core.errors import ProducerClosed, RateLimited
from producer_core.testing import FakeClock
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
    limited.give_back(message(), 100.0)

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
    limited._wait = lambda *_: released.wait(10)
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
    limited._wait = lambda *_: None
    limited.acquire(message(), 60.0)
    limited.acquire(message(), 60.0)  # reserved for 0.1 s later

    assert not limited.take_now(message())


class Interrupted(Exception):
    pass


def interrupt_waits(limited):
    def interrupt(*_):
        raise Interrupted

    limited._wait = interrupt


def test_an_interrupted_wait_blocks_no_later_message():
    """Regression: small messages waited as long as a large one that Ctrl-C had ended."""
    now = 100.0
    limited = limiter(
        lambda: now,
        max_bytes_per_second=1000, max_messages_per_second=100, rate_limit_burst_ms=20_000,
    )  # fmt: skip
    limited.acquire(message(value=b"x" * 20_000), 0.0)
    interrupt_waits(limited)
    with pytest.raises(Interrupted):
        limited.acquire(message(value=b"x" * 20_000), 60.0)

    now = 101.0  # 1,000 bytes have accumulated
    assert free(limited, message(value=b"x" * 10)) in (99, 100)  # floats are rounded


def test_the_messages_behind_an_interrupted_wait_move_up_in_their_order():
    limited = limiter(max_bytes_per_second=100, rate_limit_burst_ms=1000)
    limit = limited._all_topics[0]
    limit.reserve(100, 100.0, 0.0)
    first, second, third = (limit.reserve(size, 100.0, 60.0) for size in (100, 50, 10))
    assert [one.at for one in (first, second, third)] == pytest.approx([101.0, 101.5, 101.6])

    limit.cancel(first, 100.2)

    assert [one.at for one in (second, third)] == pytest.approx([100.5, 100.6])
    assert limit.reserve(10, 100.2, 60.0).at == pytest.approx(100.7)


@pytest.mark.parametrize("size", [1, 300])
@pytest.mark.parametrize(("behind", "step"), [(0, "copy"), (2, "copy"), (2, "ready_together")])
def test_a_signal_handler_that_sends_while_a_message_gives_up_changes_no_plan(
    monkeypatch, size, behind, step
):
    """Regression: the message of the handler changed the deque in mid-iteration, or its tokens were not counted."""
    limited = limiter(max_bytes_per_second=100, rate_limit_burst_ms=1000)
    limit = limited._all_topics[0]
    limit.reserve(100, 100.0, 0.0)
    first, *others = (limit.reserve(100, 100.0, 60.0) for _ in range(1 + behind))
    original, nested = getattr(module, step), []

    def interrupted(*arguments):
        if not nested:
            nested.append(None)
            nested[0] = limit.reserve(size, 100.2, 60.0)
        return original(*arguments)

    monkeypatch.setattr(module, step, interrupted)
    limit.cancel(first, 100.2)
    monkeypatch.undo()

    expected = limiter(max_bytes_per_second=100, rate_limit_burst_ms=1000)._all_topics[0]
    for one in (100, *(100 for _ in others), size):
        last = expected.reserve(one, 100.0, 60.0)
    assert nested[0].at == pytest.approx(max(last.at, 100.2))
    behind = expected.reserve(50, 100.2, 60.0).at
    assert limit.reserve(50, 100.2, 60.0).at == pytest.approx(behind)


def test_a_wait_ends_earlier_when_a_message_before_it_gives_up():
    clock = FakeClock(100.0)
    limited = limiter(clock, max_messages_per_second=0.1, rate_limit_burst_ms=0)
    limit = limited._all_topics[0]
    limit.reserve(0, clock(), 0.0)
    before = limit.reserve(0, clock(), 60.0)
    waited = []
    waiting = threading.Thread(target=lambda: waited.append(limited.acquire(message(), 60.0)))
    waiting.start()
    eventually(lambda: len(limit._waiting) == 2)
    limit.cancel(before, clock())
    clock.advance(10.0)
    waiting.join(10)

    assert waited == [pytest.approx(10.0)]


@given(
    steps=st.lists(
        st.tuples(st.floats(0, 2), st.integers(1, 300), st.sampled_from(["stay", "cancel", "charge"])),
        max_size=30,
    )
)
def test_cancelled_reservations_leave_the_limit_as_if_they_had_never_been(steps):
    """Whatever else happens in between: the next message waits exactly as long."""
    settings = {"max_messages_per_second": 3, "max_bytes_per_second": 200, "rate_limit_burst_ms": 1500}
    with_cancelled, without = (limiter(**settings)._all_topics[0] for _ in range(2))
    now, cancelled = 100.0, []
    for pause, size, what in steps:
        now += pause
        if what == "cancel":
            reservation = with_cancelled.reserve(size, now, 1e9)
            if reservation.at > now:
                cancelled.append(reservation)
            else:  # it has passed
                without.reserve(size, now, 1e9)
            with_cancelled.cancel(reservation, now) if reservation in cancelled else None
        else:
            for limit in (with_cancelled, without):
                limit.charge(size, now) if what == "charge" else limit.reserve(size, now, 1e9)

    assert with_cancelled.reserve(1, now, 1e9).at == pytest.approx(without.reserve(1, now, 1e9).at)
