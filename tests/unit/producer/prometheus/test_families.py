"""A reading as metric families: names, labels, bounds and steady sums."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from producer_core.metrics.histogram import bucket_of
from producer_core.producer.prometheus.definitions import METRICS
from producer_core.producer.prometheus.families import Families
from producer_core.producer.prometheus.family import to_metric
from producer_core.producer.prometheus.readings import (
    BrokerReading,
    CircuitKey,
    CircuitReading,
    DeadLetters,
    FailedAttempts,
    FiringAlerts,
    ProcessReading,
    Reading,
    StoreReading,
    TopicReading,
)

FULL = Reading(
    {"orders": TopicReading(acknowledged=3, bytes=60, latency_sum=0.9, buckets={bucket_of(0.3): 3})},
    {FailedAttempts("orders", "_MSG_TIMED_OUT"): 2},
    brokers={1: BrokerReading(requests=5, rtt_count=5, rtt_sum=0.5), -1: BrokerReading(requests=1)},
    dead_letters={DeadLetters("orders", "dead", "_MSG_TIMED_OUT", "not_sent"): 4},
    process=ProcessReading(7, 700, True),
    oldest_dead_letters={"orders": 1_700_000_000.5},
    firing_alerts={FiringAlerts("fenced", "critical"): 2},
    circuits=CircuitReading({CircuitKey("", "open"): 1, CircuitKey("orders", "open"): 2}, {"orders": 9}, 3),
    store=StoreReading(4096, 1_800_000_000.5, True),
)


class Fixed:
    def __init__(self, families, reading):
        self.families, self.reading = families, reading

    def collect(self):
        return map(to_metric, self.families.of(self.reading))


def text_of(reading, families=None):
    registry = CollectorRegistry()
    registry.register(Fixed(families or Families(), reading))
    return generate_latest(registry).decode()


def samples(reading, families=None):
    """Return every sample by its name and its varying labels."""
    return {
        (
            sample.name,
            *(value for name, value in sorted(sample.labels.items()) if value not in ("kafka", "send")),
        ): sample.value
        for family in text_string_to_metric_families(text_of(reading, families))
        for sample in family.samples
    }


def test_names_and_labels_are_those_of_the_semantic_conventions():
    text = text_of(FULL)

    assert (
        'messaging_client_sent_messages_total{messaging_destination_name="orders",messaging_operation_name="send",'
        'messaging_system="kafka"} 3.0'
    ) in text
    assert (
        'messaging_client_operation_duration_seconds_bucket{le="0.5",messaging_destination_name="orders",'
        'messaging_operation_name="send",messaging_operation_type="send",messaging_system="kafka"} 3.0'
    ) in text


def test_a_full_reading_has_every_metric_with_its_type_and_labels():
    families = {family.name: family for family in map(to_metric, Families().of(FULL))}

    for name, definition in METRICS.items():
        family = families.pop(name.removesuffix("_total") if definition.type == "counter" else name)
        assert family.type == definition.type
        assert family.documentation == definition.help
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(definition.labels), name
    assert families == {}


def test_a_value_that_the_source_does_not_have_is_left_out():
    text = text_of(Reading({}, process=ProcessReading(journal_messages=0)))

    assert "producer_core_journal_messages 0.0" in text
    for absent in ("journal_bytes", "deduplication", "store_bytes", "stored_dead_letters"):
        assert absent not in text


def test_topics_beyond_the_bound_are_summed_and_their_histograms_merged():
    topics = {
        name: TopicReading(acknowledged=1, latency_sum=0.5, buckets={bucket_of(0.3): 1}) for name in "abcd"
    }

    found = samples(Reading(topics), Families(topics=2))

    assert [found["messaging_client_sent_messages_total", name] for name in ("a", "b", "other")] == [1, 1, 2]
    assert found["messaging_client_operation_duration_seconds_bucket", "0.25", "other"] == 0
    assert found["messaging_client_operation_duration_seconds_bucket", "0.5", "other"] == 2
    assert found["messaging_client_operation_duration_seconds_sum", "other"] == 1.0
    assert ("messaging_client_sent_messages_total", "c") not in found


def test_topics_that_share_a_label_have_the_time_of_the_oldest_dead_letter():
    reading = replace(FULL, oldest_dead_letters={"a": 30.0, "b": 10.0, "c": 20.0})

    found = samples(reading, Families(topics=0))

    assert found["producer_core_oldest_dead_letter_timestamp_seconds", "other"] == 10.0


def test_an_older_topic_that_appears_later_does_not_take_a_label():
    families = Families(topics=1)
    samples(Reading({"b": TopicReading()}), families)

    found = samples(Reading({"a": TopicReading(dead=1), "b": TopicReading(dead=2)}), families)

    assert found["producer_core_dead_letters_total", "b"] == 2
    assert found["producer_core_dead_letters_total", "other"] == 1


def test_error_codes_and_brokers_are_bounded():
    errors = {FailedAttempts("t", f"CODE_{number}"): 1 for number in range(100)}
    brokers = {number: BrokerReading(requests=1) for number in range(100)}

    found = samples(Reading({"t": TopicReading()}, errors, brokers=brokers))

    codes = [key for key in found if key[0] == "producer_core_failed_attempts_total"]
    assert len(codes) == 65
    assert found["producer_core_failed_attempts_total", "_OTHER", "t"] == 36
    assert found["producer_core_broker_requests_total", "other"] == 36


def test_bootstrap_addresses_share_a_label():
    found = samples(Reading({}, brokers={-1: BrokerReading(requests=1), -2: BrokerReading(requests=2)}))

    assert found["producer_core_broker_requests_total", "bootstrap"] == 3


def test_a_sum_of_seconds_never_falls_because_of_rounding():
    families, name = Families(), "messaging_client_operation_duration_seconds_sum"

    found = [
        samples(Reading({"t": TopicReading(latency_sum=total)}), families)[name, "t"]
        for total in (1234.5, 1234.49999, 1235.0, 3.0)
    ]

    assert found == [1234.5, 1234.5, 1235.0, 3.0]  # the last one is a new store


def test_label_values_are_escaped():
    assert r'messaging_destination_name="a\"b\\"' in text_of(Reading({'a"b\\': TopicReading()}))
