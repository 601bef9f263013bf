"""The ranges of the second pass: few, disjoint, and without the widest gaps."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from producer_core.pipeline.integrity.ranges import covered, layers, merged, split

INTERVALS = st.lists(
    st.tuples(st.integers(0, 500), st.integers(0, 40)).map(lambda one: (one[0], one[0] + one[1])), max_size=40
)


@given(INTERVALS, st.integers(1, 5))
def test_a_few_disjoint_ranges_cover_every_interval(intervals, most):
    ranges = merged(intervals, most)

    assert len(ranges) <= most
    assert all(end < start for (_, end), (start, _) in pairwise(ranges))
    assert all(any(a <= start and end <= b for a, b in ranges) for start, end in intervals if start < end)


@given(INTERVALS)
def test_offsets_between_a_few_intervals_are_not_read_again(intervals):
    offsets = {offset for start, end in intervals for offset in range(start, end)}
    assert covered({0: merged(intervals, 100)}) == len(offsets)


def test_the_widest_gaps_are_not_read():
    assert merged([(0, 1), (2, 3), (100, 101), (103, 104), (500, 501)], 3) == [(0, 3), (100, 104), (500, 501)]


def test_each_read_has_one_range_per_partition():
    assert layers({0: [(0, 1), (5, 6)], 1: [(2, 3)]}) == [{0: (0, 1), 1: (2, 3)}, {0: (5, 6)}]
    assert layers({}) == []


@given(
    st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda one: (one[0], sum(one)))),
    st.integers(1, 50),
)  # fmt: skip
def test_a_part_of_ranges_has_the_wanted_size_and_the_rest_follows_it(ranges, size):
    part, rest = split(ranges, size)

    total = covered({number: [one] for number, one in ranges.items()})
    assert covered({number: [one] for number, one in part.items()}) == min(size, total)
    pieces = {number: [one[number] for one in (part, rest) if number in one] for number in ranges}
    assert {number: merged(found) for number, found in pieces.items()} == {
        number: merged([one]) for number, one in ranges.items()
    }
