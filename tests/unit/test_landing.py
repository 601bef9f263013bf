"""The landing probe against librdkafka's mock brokers."""

from __future__ import annotations

import time
import uuid

import pytest
from confluent_kafka import Producer

from producer_core.brokers import embedded
from producer_core.kafka import record_lookup
from producer_core.messages import ID_HEADER, id_bytes, id_text

SESSION = uuid.UUID("01930000-0000-7000-8000-000000000002")
COUNT = 2_000


@pytest.fixture(scope="module")
def broker():
    with embedded.start(brokers=1, topics={"orders": 4, "empty": 2}) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap_servers, "linger.ms": 1})
        for number in range(COUNT):
            headers = [("other", None), (ID_HEADER, id_bytes(SESSION, number))]
            producer.produce("orders", b"x" * 50, partition=number % 4, headers=headers)
        producer.produce("orders", b"somebody else's", partition=0)
        assert producer.flush(20) == 0
        yield running


def probe(broker, number, topic="orders", partition=None, **choices):
    config = {"bootstrap.servers": broker.bootstrap_servers, "acks": "all", "linger.ms": 5}
    return record_lookup.probe(config, topic, partition, id_text(id_bytes(SESSION, number)), **choices)


def test_a_record_that_landed_is_found_with_its_place(broker):
    for number in (0, 1, COUNT - 1):
        found = probe(broker, number)
        assert (found.outcome, found.partition, found.offset) == ("found", number % 4, number // 4)


def test_a_record_that_is_not_there_is_absent_only_after_everything_was_read(broker):
    answer = probe(broker, COUNT + 5)

    assert answer.outcome == "not_found"
    assert answer.looked_at == COUNT + 1
    assert "2,001 records were read" in answer.text


def test_an_empty_topic_has_it_not(broker):
    assert probe(broker, 0, topic="empty").outcome == "not_found"


def test_one_partition_is_looked_at_when_it_is_known(broker):
    assert probe(broker, 6, partition=2).outcome == "found"
    elsewhere = probe(broker, 6, partition=3)
    assert (elsewhere.outcome, elsewhere.looked_at) == ("not_found", COUNT // 4)


def test_many_are_looked_for_in_one_pass(broker):
    ids = [id_text(id_bytes(SESSION, number)) for number in (3, 1500, COUNT + 1)]

    found = record_lookup.look({"bootstrap.servers": broker.bootstrap_servers}, "orders", ids)

    assert [found[one].outcome for one in ids] == ["found", "found", "not_found"]


def test_a_broker_without_a_time_index_does_not_make_it_absent(broker):
    since = int(time.time() * 1000)

    assert probe(broker, 0, since_ms=since).outcome == "found"
    assert probe(broker, COUNT + 1, since_ms=since).outcome == "not_found"


def test_a_bound_that_ends_the_look_early_is_inconclusive(broker):
    answer = probe(broker, COUNT + 1, max_records=10)

    assert answer.outcome == "inconclusive"
    assert "only 10 records are read, and 2,001 could be it" in answer.text


def test_a_topic_that_is_gone_is_inconclusive_and_says_so(broker):
    assert "the topic gone does not exist" in probe(broker, 0, topic="gone").text
    assert "no partition 9" in probe(broker, 0, partition=9).text


def test_nobody_at_the_address_is_inconclusive_within_the_bound():
    answer = record_lookup.probe(
        {"bootstrap.servers": "127.0.0.1:1"}, "orders", None, id_text(id_bytes(SESSION, 0)), timeout=0.5
    )

    assert answer.outcome == "inconclusive"


def test_nothing_asked_needs_no_broker():
    assert record_lookup.look({"bootstrap.servers": "127.0.0.1:1"}, "orders", []) == {}
