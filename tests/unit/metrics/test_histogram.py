"""The histogram: its documented error bound, and merges."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core.metrics.histogram import (
    RELATIVE_ERROR,
    Histogram,
    bucket_of,
    middle,
    quantiles,
    upper_bound,
)

LATENCIES = st.lists(st.floats(1e-6, 86_400), min_size=1, max_size=200)
QUANTILES = st.floats(0, 1)


def filled(latencies):
    histogram = Histogram()
    histogram.add(latencies)
    return histogram


@given(LATENCIES, QUANTILES)
def test_a_quantile_is_within_the_documented_error(latencies, q):
    exact = sorted(latencies)[max(1, math.ceil(q * len(latencies))) - 1]
    found = filled(latencies).quantile(q)
    assert found == pytest.approx(exact, rel=RELATIVE_ERROR * 1.0001)


@given(st.lists(LATENCIES, min_size=1, max_size=6), st.randoms())
def test_merges_in_any_order_give_the_same_histogram(parts, random):
    whole = filled([latency for part in parts for latency in part])
    heap = [filled(part) for part in parts]
    while len(heap) > 1:
        random.shuffle(heap)
        one, other = heap.pop(), heap.pop()
        one.merge(other)
        heap.append(one)
    assert heap[0].counts == whole.counts
    assert heap[0].total == whole.total == sum(map(len, parts))


@given(LATENCIES, LATENCIES)
def test_a_merge_does_not_change_the_other_histogram(one, other):
    left, right = filled(one), filled(other)
    before = right.copy()
    left.merge(right)
    assert right.counts == before.counts


@given(st.floats(1e-6, 86_400))
def test_a_latency_is_within_its_bucket(seconds):
    bucket = bucket_of(seconds)
    assert seconds <= upper_bound(bucket) * (1 + 1e-9)
    assert bucket == 0 or seconds >= upper_bound(bucket - 1) * (1 - 1e-9)
    assert bucket == 0 or upper_bound(bucket - 1) < middle(bucket) < upper_bound(bucket)


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e-6, -0.5])
def test_a_latency_that_is_too_short_to_measure_is_in_the_first_bucket(seconds):
    assert bucket_of(seconds) == 0


def test_an_empty_histogram_has_no_quantiles():
    assert Histogram().quantile(0.5) is None
    assert quantiles({}, (0.5, 0.99)) == [None, None]


@given(LATENCIES.filter(len))
def test_a_quantile_slightly_above_one_is_the_highest_latency(latencies):
    counts = filled(latencies).counts
    assert quantiles(counts, (1.0 + 1e-9, 0.5)) == quantiles(counts, (1.0, 0.5))  # regression: IndexError


@pytest.mark.slow
@given(LATENCIES, st.lists(QUANTILES, min_size=2, max_size=5).map(sorted))
def test_a_higher_quantile_never_has_a_lower_latency(latencies, qs):
    found = quantiles(filled(latencies).counts, qs)
    assert found == sorted(found)


def test_the_error_bound_is_the_documented_one():
    assert round(RELATIVE_ERROR * 100, 1) == 2.2
