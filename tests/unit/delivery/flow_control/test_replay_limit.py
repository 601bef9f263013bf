"""A replay in transactions takes from the rate limits of its producer."""

from __future__ import annotations

import pytest

from producer_core._internal.rate_settings import rate_limits
from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.flow_control.rate_limiter import RateLimiter
from producer_core.delivery.flow_control.replay_limit import ReplayLimit
from producer_core.errors import RateLimited
from producer_core.replay.pace import ReplayPace
from producer_core.testing import FakeClock


@pytest.fixture
def clock():
    return FakeClock(100.0)


def limiter(clock, **settings):
    return RateLimiter(rate_limits(settings), monotonic=clock)


def record(topic="orders", value=b"", key=None, headers=()):
    return ReplayRecord("id", topic, key, value, headers, None, None, 0.0, "absent", "")


def wait_of_a_message(limited, topic="orders", value=b""):
    with pytest.raises(RateLimited) as refused:
        limited.acquire(Delivery(b"id", 0, topic, None, value), 0.0)
    return refused.value.retry_after_s


def test_without_a_limit_for_its_topics_a_replay_has_none(clock):
    assert ReplayLimit(limiter(clock, max_messages_per_second={"orders": 5}), ["payments"]).rate() is None


def test_the_lowest_limit_of_the_topics_applies(clock):
    limited = limiter(clock, max_messages_per_second={"orders": 5, "payments": 3, "*": 20})

    assert ReplayLimit(limited, ["orders", "payments"]).rate() == pytest.approx(3)
    assert ReplayLimit(limited, ["other"]).rate() == pytest.approx(20)


def test_records_of_a_replay_delay_the_messages_after_them(clock):
    limited = limiter(clock, max_messages_per_second={"orders": 10, "*": 20}, rate_limit_burst_ms=0)

    ReplayLimit(limited, ["orders", "payments"]).charge([record()] * 30 + [record("payments")] * 30)

    assert wait_of_a_message(limited) == pytest.approx(3.0)
    assert wait_of_a_message(limited, "payments") == pytest.approx(3.0)


def test_bytes_are_those_of_key_value_and_headers(clock):
    limited = limiter(clock, max_bytes_per_second=100, rate_limit_burst_ms=0)
    limit = ReplayLimit(limited, ["orders"])
    assert limit.rate() < 1  # the size is not known yet

    limit.charge([record(value=b"1234", key=b"56", headers=(("ab", b"cd"), ("e", None)))] * 10)

    assert wait_of_a_message(limited) == pytest.approx(1.1)
    clock.advance(2.5)
    assert limit.rate() == pytest.approx(100 / 11)


def test_a_replay_leaves_half_of_the_limit_to_messages_that_wait(clock):
    limited = limiter(clock, max_messages_per_second=10, rate_limit_burst_ms=0)
    limit = ReplayLimit(limited, ["orders"])
    limited._wait = lambda *_: None
    for _ in range(3):
        limited.acquire(Delivery(b"id", 0, "orders", None, b""), 60.0)

    assert limit.rate() == pytest.approx(5)
    clock.advance(2.5)
    assert limit.rate() == pytest.approx(10)


def test_a_replay_leaves_half_of_the_limit_to_messages_that_do_not_wait(clock):
    """Regression: `try_send`, and calls that were refused, got nothing for as long as the replay ran."""
    limited = limiter(clock, max_messages_per_second=10, rate_limit_burst_ms=0)
    pace = ReplayPace(None, clock(), shared=ReplayLimit(limited, ["orders"]))
    accepted = 0

    for _ in range(200):
        clock.advance(0.05)
        accepted += limited.take_now(Delivery(b"id", 0, "orders", None, b""))
        pace.claimed([record()] * pace.room(clock(), 1000))

    assert 30 <= accepted <= 70


def test_a_replay_of_records_that_become_larger_stops_while_it_is_in_debt(clock):
    limited = limiter(clock, max_bytes_per_second=1000, rate_limit_burst_ms=0)
    limit = ReplayLimit(limited, ["orders"])
    pace = ReplayPace(None, clock(), shared=limit)
    assert pace.room_for_bytes(1 << 25) == 1000

    pace.claimed([record(value=b"x" * 10)] * 10)
    pace.claimed([record(value=b"x" * 900)] * 10)
    clock.advance(2.0)
    assert (limit.rate(), pace.room(clock(), 1000)) == (0.0, 0)

    clock.advance(7.5)
    assert limit.rate() > 0


@pytest.mark.parametrize(("own", "expected"), [(None, 10), (4.0, 4), (100.0, 10)])
def test_the_pace_follows_the_lower_one_of_both_rates(clock, own, expected):
    limit = ReplayLimit(limiter(clock, max_messages_per_second=10), ["orders"])
    pace = ReplayPace(own, 0.0, shared=limit)
    pace.claimed([record()])

    assert pace.room(0.0, 1000) == 0
    assert pace.room(1.0, 1000) == expected
    assert pace.rate == own


def test_the_pace_takes_tokens_for_what_it_claims(clock):
    limited = limiter(clock, max_messages_per_second=10, rate_limit_burst_ms=0)
    pace = ReplayPace(None, 0.0, shared=ReplayLimit(limited, ["orders"]))

    pace.claimed([record()] * 5)

    assert wait_of_a_message(limited) == pytest.approx(0.5)
