"""The read of a ledger topic with a real Kafka: transactions, retention, slices and errors."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from producer_core.config import client_config
from producer_core.errors import BrokerError, PipelineError
from producer_core.kafka.clients import admin
from producer_core.metrics.telemetry import encode
from producer_core.pipeline.integrity import ledger_topic
from producer_core.pipeline.integrity.audit_tables import audit_tables
from producer_core.pipeline.integrity.ledger_sources import read_ledgers, sources
from producer_core.pipeline.integrity.spans import PartitionBounds
from producer_core.store import Batch

pytestmark = pytest.mark.kafka


@pytest.fixture
def settings(kafka):
    return client_config(kafka.bootstrap_servers).settings


def topic(kafka, partitions=1):
    name = f"t-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=partitions)
    return name


def send(kafka, name, values, partition=0, timestamp=0, **settings):
    client = Producer({"bootstrap.servers": kafka.bootstrap_servers, **settings})
    if settings:
        client.init_transactions(30)
        client.begin_transaction()
    for value in values:
        client.produce(name, value, partition=partition, timestamp=timestamp)
    assert client.flush(30) == 0
    return client


def source_of(settings, name):
    (found,) = sources(admin(settings), [name])
    return found


def read(settings, source):
    tables = ledger_topic.telemetry(settings, source.facts.name, source.bounds)
    return [row for table in tables for row in table.to_pylist()]


def test_all_records_between_the_bounds_are_read_with_place_and_time(kafka, settings):
    name = topic(kafka, 3)
    send(kafka, name, [b"a", None, b"\xff"], timestamp=1_500)
    send(kafka, name, [b"b"], partition=2, timestamp=2_000)
    source = source_of(settings, name)
    send(kafka, name, [b"later"])
    send(kafka, name, [b"later"], partition=1)

    rows = sorted(read(settings, source), key=lambda row: (row["source"], row["position"]))

    assert [tuple(row.values()) for row in rows] == [
        (f"{name}-0", 0, 1.5, "a"),
        (f"{name}-0", 1, 1.5, None),
        (f"{name}-0", 2, 1.5, "\N{REPLACEMENT CHARACTER}"),
        (f"{name}-2", 0, 2.0, "b"),
    ]


def test_aborted_records_are_left_out_and_a_marker_may_be_the_last_offset(kafka, settings):
    name = topic(kafka)
    send(kafka, name, [b"kept"], **{"transactional.id": f"x-{name}"}).commit_transaction(30)
    send(kafka, name, [b"aborted"], **{"transactional.id": f"x-{name}"}).abort_transaction(30)
    source = source_of(settings, name)
    assert source.bounds[0].stable == 4

    assert [row["value"] for row in read(settings, source)] == ["kept"]


def test_records_that_retention_removes_before_the_read_are_left_out(kafka, settings):
    name = topic(kafka)
    send(kafka, name, [b"0", b"1", b"2"])
    source = source_of(settings, name)
    place = TopicPartition(name, 0, 2)
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    client.delete_records([place])[place].result(30)

    assert [row["value"] for row in read(settings, source)] == ["2"]


def test_a_slice_ends_at_its_size(kafka, settings, monkeypatch):
    monkeypatch.setattr(ledger_topic, "_SLICE_BYTES", 1_000)
    name = topic(kafka)
    send(kafka, name, [bytes([65 + number]) * 300 for number in range(10)])

    bounds = source_of(settings, name).bounds
    slices = [table.num_rows for table in ledger_topic.telemetry(settings, name, bounds)]

    assert slices == [4, 4, 2]


def test_an_empty_topic_is_not_read(kafka, settings):
    assert read(settings, source_of(settings, topic(kafka))) == []


def test_a_deleted_topic_is_an_error(settings):
    with pytest.raises(KafkaException):
        list(ledger_topic.telemetry(settings, f"gone-{uuid.uuid4().hex[:8]}", {0: PartitionBounds(0, 5, 5)}))


def test_a_ledger_topic_that_is_created_again_during_the_audit_is_refused(kafka, settings):
    name = topic(kafka)
    config = client_config(kafka.bootstrap_servers)
    send(kafka, name, [encode(Batch("p", 0)), encode(Batch("p", 1))])
    source = source_of(settings, name)
    with audit_tables() as tables:
        assert read_ledgers(config, tables, [source], None, topic="orders", cluster="").gaps == ()

    kafka.delete_topic(name)
    kafka.create_topic(name, partitions=1)
    send(kafka, name, [encode(Batch("q", 0)), encode(Batch("q", 1))])

    with (
        audit_tables() as tables,
        pytest.raises(PipelineError, match=f"Ledger topic '{name}' was deleted and re-created"),
    ):
        read_ledgers(config, tables, [source], None, topic="orders", cluster="")


def test_a_partition_that_does_not_respond_is_an_error(kafka, settings, monkeypatch):
    monkeypatch.setattr(ledger_topic, "_TIMEOUT", 1.0)
    name = topic(kafka)
    send(kafka, name, [b"a"])
    source = source_of(settings, name)

    with pytest.raises(BrokerError, match=f"Partition 0 of ledger topic {name} did not respond"):
        read({**settings, "bootstrap.servers": "127.0.0.1:1"}, source)
