"""A reader continues at stored offsets, and says when they are not on the topic."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from producer_core.brokers import embedded
from producer_core.kafka.clients import reader
from producer_core.pipeline import telemetry_reader as module
from producer_core.pipeline.telemetry_reader import Place, TelemetryReader

PLACES = [Place("telemetry", 0), Place("telemetry", 1)]


@pytest.fixture
def broker():
    with embedded.start(topics={"telemetry": 2}) as running:
        yield running


@pytest.fixture
def records(broker):
    with reader({"bootstrap.servers": broker.bootstrap_servers}) as consumer:
        yield TelemetryReader(consumer)


def publish(broker, *numbers):
    client = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in numbers:
        client.produce("telemetry", b"%d" % number, partition=number % 2)
    assert client.flush(20) == 0


def read(records, stored, until=None):
    records.assign(["telemetry"], lambda topic: stored)
    piece = records.read(20.0, lambda: False, until or records.ends())
    return sorted(int(value.as_py()) for value in piece.records["value"]), piece


def test_each_record_is_read_once_from_the_stored_offsets(broker, records):
    publish(broker, *range(10))
    values, piece = read(records, {})
    assert values == list(range(10)) and piece.positions == {PLACES[0]: 5, PLACES[1]: 5}
    assert records.behind == 10
    records.stored(piece)
    assert records.behind == 0

    publish(broker, 10, 11, 12)
    again, piece = read(records, {0: 5, 1: 4})
    assert again == [9, 10, 11, 12] and piece.positions == {PLACES[0]: 7, PLACES[1]: 6}


def test_a_piece_ends_when_it_is_full_and_the_next_one_continues(broker, records, monkeypatch):
    publish(broker, *range(40))
    monkeypatch.setattr(module, "PIECE_BYTES", 10)
    monkeypatch.setattr(module, "_CONSUME", 4)
    records.assign(["telemetry"], lambda topic: {})
    ends, pieces = records.ends(), []
    while not records.has_reached(ends):
        pieces.append(records.read(20.0, lambda: False, ends).records["value"].to_pylist())
    assert len(pieces) > 3 and max(map(len, pieces)) < 40
    assert sorted(int(value) for piece in pieces for value in piece) == list(range(40))


def test_offsets_after_the_end_of_a_topic_start_at_its_beginning_with_a_warning(broker, records, caplog):
    publish(broker, 0, 1)
    values, _ = read(records, {0: 7, 1: 1})
    assert values == [0]
    (line,) = [entry.getMessage() for entry in caplog.records]
    assert line.startswith("telemetry topic is shorter than before: topic=telemetry, partition=0, position=7")


def lead(broker, partition, leader):
    """Change the leader of a partition; -1 for none."""
    assert broker._mock._call("partition_set_leader", b"telemetry", partition, leader) == 0


def test_a_partition_without_a_leader_keeps_its_stored_offset_and_the_others_are_read(broker, records):
    """Regression: its bounds are unknown, so that no partition could be assigned."""
    publish(broker, *range(10))
    lead(broker, 0, -1)
    values, piece = read(records, {0: 3, 1: 2}, until={PLACES[1]: 5})
    assert values == [5, 7, 9] and piece.positions == {PLACES[0]: 3, PLACES[1]: 5}
    assert records.leaderless == {PLACES[0]}
    assert not records.partitions_changed(["telemetry"])

    lead(broker, 0, 1)
    assert records.partitions_changed(["telemetry"])
    values, piece = read(records, dict(enumerate([3, 5])))
    assert values == [6, 8] and piece.positions == {PLACES[0]: 5, PLACES[1]: 5}
    assert not records.leaderless


def test_a_new_partition_without_a_leader_is_read_from_its_beginning_later(broker, records):
    publish(broker, *range(4))
    lead(broker, 0, -1)
    _, piece = read(records, {1: 0}, until={PLACES[1]: 2})
    assert piece.positions == {PLACES[0]: 0, PLACES[1]: 2}
    lead(broker, 0, 1)
    values, _ = read(records, {place.partition: offset for place, offset in piece.positions.items()})
    assert values == [0, 2]


def test_other_partitions_than_those_that_are_read_are_noticed(broker, records):
    records.assign(["telemetry"], lambda topic: {})
    assert not records.partitions_changed(["telemetry"])
    broker.create_topic("more", partitions=1)
    assert records.partitions_changed(["telemetry", "more"])
