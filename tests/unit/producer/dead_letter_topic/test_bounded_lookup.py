"""Lookups on a dead-letter topic whose end is not reached."""

from __future__ import annotations

import pytest

from producer_core.kafka.record_lookup import ProbeResult
from producer_core.producer.dead_letter_topic.bounded_lookup import BoundedLookup

TIMED_OUT = ProbeResult("inconclusive", None, None, 9, "The end was not reached.", True, timed_out=True)
UNAVAILABLE = ProbeResult("inconclusive", None, None, 0, "No broker is available.", True)
NOT_FOUND = ProbeResult("not_found", None, None, 9, "The record is not on the topic.")


def transient(*results):
    """Return whether the answers of lookups with these results are transient."""
    remaining = iter(results)
    lookup = BoundedLookup(lambda topic, ids, since: dict.fromkeys(ids, next(remaining)))
    return [lookup("orders-dlt", ["a"], 0)["a"].transient for _ in results]


FOUND = ProbeResult("found", 0, 7, 9, "The record is on the topic.")


def test_the_third_time_out_in_a_row_is_final():
    assert transient(*[TIMED_OUT] * 4) == [True, True, False, False]


def test_unavailable_brokers_are_never_final():
    assert all(transient(*[UNAVAILABLE] * 10))


@pytest.mark.parametrize("ended", [FOUND, NOT_FOUND])
def test_a_lookup_that_ends_begins_the_count_again(ended):
    assert transient(TIMED_OUT, TIMED_OUT, ended, TIMED_OUT, TIMED_OUT, TIMED_OUT) == [
        True, True, False, True, True, False,
    ]  # fmt: skip
