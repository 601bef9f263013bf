"""Counters: snapshots never change, and topics without events are not copied."""

from __future__ import annotations

from dataclasses import replace

from producer_core.events import Acknowledged
from producer_core.metrics.ack_batch import Acknowledgements
from producer_core.metrics.counters import Metrics


def acknowledged(topic, seq=0, latency=0.01):
    return Acknowledged(topic, 0, seq, latency, 100, 1, seq)


def test_a_snapshot_does_not_change():
    metrics = Metrics()
    metrics.acknowledged([acknowledged("orders")])

    before = metrics.snapshot()
    metrics.acknowledged([acknowledged("orders", 1), acknowledged("payments", 2)])
    metrics.duplicate("orders")

    assert (before.acknowledged, before.total("duplicates"), before.histogram.total) == (1, 0, 1)
    after = metrics.snapshot()
    assert (after.acknowledged, after.total("duplicates"), after.histogram.total) == (3, 1, 3)
    assert list(after.topics) == ["orders", "payments"]


def test_a_topic_without_events_is_not_copied_again():
    metrics = Metrics()
    metrics.acknowledged([acknowledged("orders"), acknowledged("payments")])
    first = metrics.snapshot()
    metrics.acknowledged([acknowledged("orders", 1)])
    second = metrics.snapshot()

    assert second.topics["payments"] is first.topics["payments"]
    assert second.topics["orders"] is not first.topics["orders"]


def test_a_message_found_by_a_probe_has_no_latency():
    metrics = Metrics()
    metrics.acknowledged([acknowledged("orders", latency=0.0), acknowledged("orders", 1, latency=0.5)])

    snapshot = metrics.snapshot()

    assert snapshot.acknowledged == 2
    assert snapshot.histogram.total == 1
    assert snapshot.recent_latencies == (0.5,)


def test_a_batch_in_columns_is_an_equal_sequence_with_equal_counts():
    items = [acknowledged("orders"), acknowledged("payments", 1), acknowledged("orders", 2, latency=0.5)]
    columns = Acknowledgements.of(items)

    assert (list(columns), columns[1], list(columns[1:]), len(columns)) == (items, items[1], items[1:], 3)
    assert not Acknowledgements.of([])

    one, other = Metrics(), Metrics()
    one.acknowledged(items)
    other.acknowledged(columns)
    assert one.snapshot().total("bytes") == other.snapshot().total("bytes") == 300
    assert one.snapshot().histogram.counts == other.snapshot().histogram.counts


def test_the_counts_of_a_batch_of_many_topics_equal_those_of_its_single_acknowledgements():
    topics = ["orders", "payments", "orders", "refunds", "orders"]
    items = [
        Acknowledged(topic, 0, seq, 0.01 * (seq + 1), 100 + seq, 1 + seq % 2, seq)
        for seq, topic in enumerate(topics)
    ]
    together, one_by_one = Metrics(), Metrics()

    together.acknowledged(items)
    for item in items:
        one_by_one.acknowledged([item])

    whole, summed = together.snapshot(), one_by_one.snapshot()
    for topic, counters in whole.topics.items():
        other = summed.topics[topic]
        assert counters.histogram.counts == other.histogram.counts
        assert replace(counters, histogram=other.histogram) == other
    orders = whole.topics["orders"]
    assert (orders.acknowledged, orders.bytes, orders.retry_successes) == (3, 306, 0)
    assert whole.total("retry_successes") == 2
    assert sorted(whole.recent_latencies) == sorted(summed.recent_latencies)
