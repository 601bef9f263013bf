"""The token bucket: what it grants in any interval, and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core.delivery.flow_control.token_bucket import TokenBucket, ready_together


def grant(bucket, tokens, now):
    at = bucket.ready_at(tokens, now)
    bucket.take(tokens, at)
    return at


def test_a_full_bucket_grants_its_burst_at_once_and_the_rest_at_the_rate():
    bucket = TokenBucket(rate=10, burst=0.5)

    granted = [grant(bucket, 1, 100.0) for _ in range(8)]

    assert granted == pytest.approx([100.0] * 5 + [100.1, 100.2, 100.3])


def test_without_a_burst_messages_follow_each_other_at_equal_distances():
    bucket = TokenBucket(rate=4, burst=0)

    assert [grant(bucket, 1, 50.0) for _ in range(4)] == pytest.approx([50.0, 50.25, 50.5, 50.75])


def test_an_unused_bucket_accumulates_no_more_than_its_burst():
    bucket = TokenBucket(rate=10, burst=0.3)
    grant(bucket, 3, 10.0)

    assert [grant(bucket, 1, 1000.0) for _ in range(4)] == pytest.approx([1000.0, 1000.0, 1000.0, 1000.1])


def test_a_request_larger_than_the_bucket_is_granted_from_a_full_bucket_and_paid_for_later():
    bucket = TokenBucket(rate=100, burst=1)

    assert grant(bucket, 500, 10.0) == 10.0
    assert grant(bucket, 100, 10.0) == pytest.approx(15.0)


def test_tokens_that_were_given_back_are_granted_again():
    bucket = TokenBucket(rate=1, burst=1)
    grant(bucket, 1, 10.0)
    bucket.give_back(1, 10.0)

    assert grant(bucket, 1, 10.0) == 10.0


def test_tokens_that_the_bucket_has_made_up_for_are_not_given_back():
    """Regression: they let more than a burst through."""
    bucket = TokenBucket(rate=1, burst=3)
    grant(bucket, 3, 10.0)
    assert grant(bucket, 3, 20.0) == 20.0  # the bucket was full again at 13

    bucket.give_back(3, 10.0)

    assert bucket.ready_at(1, 20.0) == 21.0


def test_a_charge_puts_the_bucket_into_debt():
    bucket = TokenBucket(rate=10, burst=0)
    for _ in range(5):
        bucket.take(1, 10.0)

    assert bucket.ready_at(1, 10.0) == pytest.approx(10.5)


def test_two_buckets_are_ready_when_the_later_one_is():
    quick, slow = TokenBucket(rate=100, burst=0), TokenBucket(rate=1, burst=0)
    slow.take(3, 10.0)

    assert ready_together([(quick, 1), (slow, 1)], 10.0) == pytest.approx(13.0)
    assert ready_together([], 10.0) == 10.0


@given(
    rate=st.floats(0.5, 1e4),
    burst=st.floats(0, 5),
    steps=st.lists(st.tuples(st.floats(0, 2), st.integers(1, 50)), min_size=2, max_size=60),
)
def test_no_interval_has_more_than_the_rate_and_the_burst_allow(rate, burst, steps):
    bucket, now, granted = TokenBucket(rate, burst), 1000.0, []
    for pause, tokens in steps:
        now += pause
        at = grant(bucket, tokens, now)
        assert at >= now
        granted.append((at, tokens))
        now = at

    largest = max(tokens for _, tokens in granted)
    for first in range(len(granted)):
        for last in range(first, len(granted)):
            interval = granted[last][0] - granted[first][0]
            total = sum(tokens for _, tokens in granted[first : last + 1])
            assert total <= (rate * (interval + burst) + largest) * (1 + 1e-6) + 1e-3
