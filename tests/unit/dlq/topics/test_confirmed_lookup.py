"""The second lookup of dead letters that a first one did not find."""

from __future__ import annotations

import pytest

from producer_core.dlq.topics.confirmed_lookup import CONFIRM_AFTER_S, ConfirmedLookup
from producer_core.errors import ProducerClosed
from producer_core.kafka.record_lookup import ProbeResult

NOT_FOUND = ProbeResult("not_found", None, None, 3, "The record is not on the topic.")
UNKNOWN = ProbeResult("inconclusive", None, None, 0, "No broker responded.", transient=True)


class Topic:
    """A topic that gets a record between two lookups, and the seconds that passed until then."""

    def __init__(self, *records, later=(), unknown=()):
        self.records, self.later, self.unknown = set(records), later, unknown
        self.lookups, self.seconds = [], 0.0

    def sleep(self, seconds):
        self.seconds += seconds
        self.records |= set(self.later)

    def probe(self, topic, ids, since_ms):
        self.lookups.append((topic, tuple(ids), since_ms))
        return {one: self.result(one) for one in ids}

    def result(self, one):
        if one in self.unknown:
            return UNKNOWN
        return ProbeResult("found", 0, 1, 3, "Found.") if one in self.records else NOT_FOUND


def look(topic, *ids, while_waiting=lambda: None):
    results = ConfirmedLookup(topic.probe, while_waiting, sleep=topic.sleep)("orders-dlt", ids, 5)
    return {one: result.outcome for one, result in results.items()}


def test_a_record_that_a_broker_appends_after_the_first_lookup_is_found():
    topic = Topic("a", later=["b"])

    assert look(topic, "a", "b", "c") == {"a": "found", "b": "found", "c": "not_found"}
    assert topic.lookups == [("orders-dlt", ("a", "b", "c"), 5), ("orders-dlt", ("b", "c"), 5)]
    assert topic.seconds == CONFIRM_AFTER_S


def test_what_is_found_or_unknown_needs_no_second_lookup():
    topic = Topic("a", unknown=["b"])

    assert look(topic, "a", "b") == {"a": "found", "b": "inconclusive"}
    assert len(topic.lookups) == 1 and topic.seconds == 0


def test_a_producer_that_must_close_does_not_wait():
    def closing():
        raise ProducerClosed

    topic = Topic()
    with pytest.raises(ProducerClosed):
        look(topic, "a", while_waiting=closing)
    assert topic.seconds == 1
