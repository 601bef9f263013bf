"""Look up records on librdkafka's mock brokers."""

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
        producer.produce("orders", b"a record without an id", partition=0)
        assert producer.flush(20) == 0
        yield running


def probe(broker, number, topic="orders", partition=None, **choices):
    config = {"bootstrap.servers": broker.bootstrap_servers, "acks": "all", "linger.ms": 5}
    return record_lookup.probe(config, topic, partition, id_text(id_bytes(SESSION, number)), **choices)


@pytest.mark.slow
def test_a_written_record_is_found_with_its_position(broker):
    for number in (0, 1, COUNT - 1):
        found = probe(broker, number)
        assert (found.outcome, found.partition, found.offset) == ("found", number % 4, number // 4)


@pytest.mark.slow
def test_a_missing_record_is_not_found_only_after_everything_was_read(broker):
    result = probe(broker, COUNT + 5)

    assert result.outcome == "not_found"
    assert result.records_read == COUNT + 1
    assert "read to its end (2,001 records)" in result.text


def test_an_empty_topic_does_not_have_the_record(broker):
    assert probe(broker, 0, topic="empty").outcome == "not_found"


def test_only_the_given_partition_is_read(broker):
    assert probe(broker, 6, partition=2).outcome == "found"
    other_partition = probe(broker, 6, partition=3)
    assert (other_partition.outcome, other_partition.records_read) == ("not_found", COUNT // 4)


@pytest.mark.slow
def test_many_records_are_looked_up_in_one_pass(broker):
    ids = [id_text(id_bytes(SESSION, number)) for number in (3, 1500, COUNT + 1)]

    found = record_lookup.find_records({"bootstrap.servers": broker.bootstrap_servers}, "orders", ids)

    assert [found[one].outcome for one in ids] == ["found", "found", "not_found"]


@pytest.mark.slow
def test_a_record_is_found_on_a_broker_without_a_time_index(broker):
    since = int(time.time() * 1000)

    assert probe(broker, 0, since_ms=since).outcome == "found"
    assert probe(broker, COUNT + 1, since_ms=since).outcome == "not_found"


def test_a_lookup_that_reaches_its_limit_is_inconclusive(broker):
    result = probe(broker, COUNT + 1, max_records=10)

    assert result.outcome == "inconclusive"
    assert "the limit of 10 records was reached, and 2,001 records were not read" in result.text


@pytest.mark.parametrize(("read", "records", "verb"), [(1, "1 record", "was"), (2, "2 records", "were")])
def test_the_result_agrees_with_the_number_of_records_read(read, records, verb):
    search = record_lookup._Search({"an-id"}, deadline=0.0, max_records=10, records_read=read)
    assert f"{records} {verb} read" in search.result_of("an-id", "orders").text
    search.complete = True
    assert f"the topic was read to its end ({records})." in search.result_of("an-id", "orders").text


def test_a_lookup_on_a_missing_topic_or_partition_names_it(broker):
    assert "the topic gone does not exist" in probe(broker, 0, topic="gone").text
    assert "no partition 9" in probe(broker, 0, partition=9).text


@pytest.mark.slow
def test_a_lookup_without_a_broker_is_inconclusive_within_its_timeout():
    result = record_lookup.probe(
        {"bootstrap.servers": "127.0.0.1:1"}, "orders", None, id_text(id_bytes(SESSION, 0)), timeout=0.5
    )

    assert result.outcome == "inconclusive"


def test_a_lookup_of_no_records_needs_no_broker():
    assert record_lookup.find_records({"bootstrap.servers": "127.0.0.1:1"}, "orders", []) == {}
