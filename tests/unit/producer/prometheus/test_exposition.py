"""The text on `/metrics`: the same bytes as prometheus_client writes, for every value and every label."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from producer_core.metrics.histogram import bucket_of
from producer_core.producer.prometheus.exposition import render
from producer_core.producer.prometheus.families import Families
from producer_core.producer.prometheus.readings import DeadLetters, FailedAttempts, Reading, TopicReading
from tests.unit.producer.prometheus.test_families import FULL, Fixed

NAMES = ('a"b', "a\\b", "a\nb", "a\\nb", "é 🎉", "\u2028", "\x00", "a,b={c}", "", "a\rb", "\ufeff")
COUNTS = (0, 1, 999_999, 1_000_000, 1_234_567, 10**15, 2**60)


def reading():
    topics = {
        name: TopicReading(acknowledged=count, latency_sum=count / 7, buckets={bucket_of(0.3): count})
        for name, count in zip(NAMES, COUNTS + COUNTS, strict=False)
    }
    return Reading(
        topics,
        {FailedAttempts(name, name): 1 for name in NAMES},
        dead_letters={DeadLetters(name, "dead", name, "not_sent"): 1 for name in NAMES},
    )


@pytest.mark.parametrize("given", [FULL, reading(), Reading({})], ids=["full", "unusual", "empty"])
def test_the_text_is_that_of_prometheus_client(given):
    registry = CollectorRegistry()
    registry.register(Fixed(Families(), given))
    assert render(Families().of(given)) == generate_latest(registry)


def test_unusual_labels_are_read_back_unchanged():
    text = render(Families().of(reading())).decode()
    found = {
        sample.labels["messaging_destination_name"]
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "messaging_destination_name" in sample.labels
    }
    assert found == set(NAMES)


def test_a_label_that_utf8_cannot_encode_does_not_hide_the_other_metrics():
    text = render(Families().of(Reading({"\udcff": TopicReading(dead=1), "orders": TopicReading(dead=2)})))
    assert b'producer_core_dead_letters_total{messaging_destination_name="orders"} 2.0' in text
    assert b'producer_core_dead_letters_total{messaging_destination_name="?"} 1.0' in text
