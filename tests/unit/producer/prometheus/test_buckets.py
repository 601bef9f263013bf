"""Folding buckets: exact where bounds coincide, otherwise into the next boundary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from producer_core.metrics.histogram import Histogram, bucket_of, upper_bound
from producer_core.producer.prometheus.buckets import BOUNDARIES, fold

LATENCIES = st.lists(st.floats(1e-7, 60.0), max_size=60)


def test_the_boundaries_are_the_fourteen_of_the_semantic_conventions():
    assert len(BOUNDARIES) == 14
    assert (BOUNDARIES[0], BOUNDARIES[-1]) == (0.005, 10.0)


def test_folding_is_exact_where_bounds_coincide():
    boundaries = [upper_bound(bucket) for bucket in (16, 32, 48)]

    assert fold({16: 1, 17: 2, 32: 4, 33: 8, 48: 16, 49: 32}, boundaries) == [1, 7, 31, 63]


def test_a_bucket_with_a_boundary_inside_counts_from_the_next_boundary():
    bucket = bucket_of(0.005)
    assert upper_bound(bucket - 1) < 0.005 < upper_bound(bucket)

    assert fold({bucket - 1: 3, bucket: 2})[:2] == [3, 5]


def test_latencies_above_the_last_boundary_are_only_in_the_total():
    assert fold({bucket_of(60.0): 2}) == [0] * 14 + [2]


def test_an_empty_histogram_has_zero_everywhere():
    assert fold({}) == [0] * 15


@given(LATENCIES)
def test_a_latency_never_appears_shorter_and_at_most_one_bucket_longer(latencies):
    histogram = Histogram()
    histogram.add(latencies)

    *folded, total = fold(histogram.counts)

    assert total == len(latencies)
    assert folded == sorted(folded)
    for count, boundary in zip(folded, BOUNDARIES, strict=True):
        width = upper_bound(1) / upper_bound(0)
        assert sum(latency <= boundary / width for latency in latencies) <= count
        assert count <= sum(latency <= boundary * (1 + 1e-9) for latency in latencies)


@given(LATENCIES, LATENCIES)
def test_the_result_for_two_histograms_is_the_sum_of_their_results(first, second):
    one, two, both = Histogram(), Histogram(), Histogram()
    one.add(first)
    two.add(second)
    both.add([*first, *second])

    assert [a + b for a, b in zip(fold(one.counts), fold(two.counts), strict=True)] == fold(both.counts)
